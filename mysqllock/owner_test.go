package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
)

func TestIsOwner(t *testing.T) {
	t.Parallel()
	server := database(t)
	db, d := dial(t, server.DSN()), newDriver(t, server.DSN())
	rowstest.IsOwner(t, d, func(name string, token uint64) error {
		tx := begin(t, db)
		defer tx.Rollback()
		return d.IsOwner(testContext(t), tx, name, token)
	})
}

func TestIsOwnerKeepsTheLock(t *testing.T) {
	t.Parallel()
	server := database(t)
	db, d, other := dial(t, server.DSN()), newDriver(t, server.DSN()), newDriver(t, server.DSN())
	rowstest.IsOwnerKeepsTheLock(t, d, other, func() (isOwner func(token uint64) error, end func() error) {
		tx := begin(t, db)
		return func(token uint64) error { return d.IsOwner(testContext(t), tx, "a", token) }, tx.Rollback
	})
}

// TestIsOwnerOnGalera checks that IsOwner writes the lock's row on a server that replicates with
// Galera, and only there: two nodes exclude nothing but writes of the same row.
func TestIsOwnerOnGalera(t *testing.T) {
	t.Parallel()
	for setting, writes := range map[string]int64{"wsrep-on=1": 1, "wsrep-on=0": 0} {
		t.Run(setting, func(t *testing.T) {
			server := mysqltest.Start(t, setting, "binlog-format=ROW")
			db := dial(t, server.DSN())
			d := newDriver(t, server.DSN())
			l := acquire(t, d, request("a", "a"))
			const used = "SELECT used FROM snib_locks WHERE name = 'a'"
			before := number(t, db, used)
			tx, err := db.BeginTx(testContext(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.IsOwner(testContext(t), tx, "a", l.Grant().Token); err != nil {
				t.Errorf("IsOwner = %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Errorf("Commit = %v", err)
			}
			if after := number(t, db, used); (after > before) != (writes > 0) {
				t.Errorf("the row was used at %d, and then at %d; want %d writes", before, after, writes)
			}
			release(t, l)
		})
	}
}
