package mysqllock_test

import (
	"database/sql"
	"testing"

	"github.com/sniblock/snib/internal/rowstest"
)

// lockRow has a transaction lock a row, as IsOwner does.
func lockRow(t *testing.T, db *sql.DB, name string) (unlock func()) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	if err := tx.QueryRow("SELECT name FROM snib_locks WHERE name = ? LOCK IN SHARE MODE", name).Scan(&name); err != nil {
		t.Fatalf("lock the row of %q: %v", name, err)
	}
	return func() { tx.Rollback() }
}

func TestLockedRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	db := dial(t, server.DSN())
	open := func() rowstest.Driver { return newDriver(t, server.DSN()) }
	lock := func(name string) func() { return lockRow(t, db, name) }
	t.Run("Rows", func(t *testing.T) { rowstest.LockedRow(t, open, lock) })
	const waiting = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'SET STATEMENT innodb_lock_wait_timeout = 1 FOR UPDATE%'"
	waits := func() bool { return number(t, db, waiting) > 0 }
	t.Run("Floor", func(t *testing.T) { // a statement that waited for this row would hold up the requests behind it
		d := open()
		release(t, acquire(t, d, request("old", "a")))
		must(t, db, "UPDATE snib_locks SET used = 1, ends = 1 WHERE name = 'old'")
		defer lock("")()
		if err := d.Prune(testContext(t), 0); err != nil {
			t.Errorf("Prune beside a locked floor = %v, want nil at once", err)
		}
	})
	t.Run("Renew", func(t *testing.T) { rowstest.RenewBesideLockedRows(t, open(), lock, waits) })
}
