package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestIsOwner(t *testing.T) {
	t.Parallel()
	db := dial(t, mysqltest.Start(t).DSN())
	d := newDriver(t, db)
	jobtest.IsOwner(t, d, func(name string, token uint64) error {
		tx := begin(t, db)
		defer tx.Rollback()
		return d.IsOwner(testContext(t), tx, name, token)
	})
}

func TestIsOwnerKeepsTheLock(t *testing.T) {
	t.Parallel()
	db := dial(t, mysqltest.Start(t).DSN())
	d, tx := newDriver(t, db), begin(t, db)
	jobtest.IsOwnerKeepsTheLock(t, d, newDriver(t, db),
		func(token uint64) error { return d.IsOwner(testContext(t), tx, "a", token) }, tx.Rollback)
}
