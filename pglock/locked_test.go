package pglock_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/internal/rowstest"
)

// lockRow has a transaction lock a row, as IsOwner does.
func lockRow(t *testing.T, pool *pgxpool.Pool, table, name string) (unlock func()) {
	t.Helper()
	tx := begin(t, pool, "")
	if locked, err := tx.Exec(t.Context(), "SELECT FROM "+table+" WHERE name = $1 FOR SHARE", name); err != nil ||
		locked.RowsAffected() != 1 {
		t.Fatalf("lock the row of %q: %v, %v", name, locked, err)
	}
	return func() { tx.Rollback(context.Background()) }
}

func TestLockedRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	pool := dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 16 })
	open := func() rowstest.Driver { return newDriver(t, dial(t, server.URL())) }
	lock := func(name string) func() { return lockRow(t, pool, "snib_locks", name) }
	t.Run("Rows", func(t *testing.T) { rowstest.LockedRow(t, open, lock) })
	waits := func() bool { return blocked(t, pool) > 0 }
	t.Run("Renew", func(t *testing.T) { rowstest.RenewBesideLockedRows(t, open(), lock, waits) })
}
