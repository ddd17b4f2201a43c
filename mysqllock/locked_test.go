package mysqllock_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/sniblock/snib/driver"
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

// TestRenewalBesideLockedRows has transactions lock one row of each kind of hold. Only those holds
// can't be renewed.
func TestRenewalBesideLockedRows(t *testing.T) {
	t.Parallel()
	server := database(t)
	d, db := newDriver(t, dial(t, server.DSN())), dial(t, server.DSN())
	var due []driver.Lease
	var unlock []func()
	for _, kind := range []string{"exclusive", "shared", "slots", "adopted"} {
		for _, state := range []string{"locked", "free"} {
			req := request(kind+" "+state, "a")
			if req.Shared = kind == "shared"; kind == "slots" {
				req.Slots = 2
			}
			l := acquire(t, d, req)
			if kind == "adopted" {
				l = d.Lease(req.Name, req.ID, req.TTL)
			}
			if due = append(due, l); state == "locked" {
				unlock = append(unlock, lockRow(t, db, req.Name))
			}
		}
	}
	for i, answer := range d.Renew(testContext(t), due) {
		if isLocked := i%2 == 0; errors.Is(answer.Err, driver.ErrUnavailable) != isLocked || !isLocked && answer.Err != nil {
			t.Errorf("Renew of lease %d = %v, want ErrUnavailable %v", i, answer.Err, isLocked)
		}
	}
	for _, end := range unlock {
		end()
	}
	for i, answer := range d.Renew(testContext(t), due) {
		if answer.Err != nil {
			t.Errorf("Renew of lease %d afterwards = %v", i, answer.Err)
		}
	}
}

func TestLockedRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	db := dial(t, server.DSN())
	rowstest.LockedRow(t,
		func() rowstest.Driver { return newDriver(t, dial(t, server.DSN())) },
		func(name string) func() { return lockRow(t, db, name) })
}
