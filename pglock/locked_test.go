package pglock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
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
	t.Run("Rows", func(t *testing.T) {
		t.Parallel()
		rowstest.LockedRow(t,
			func() rowstest.Driver { return newDriver(t, dial(t, server.URL())) },
			func(name string) func() { return lockRow(t, pool, "snib_locks", name) })
	})
	// A batch of renewals has a lease whose row is locked.
	t.Run("Renew", func(t *testing.T) {
		t.Parallel()
		d := newDriver(t, dial(t, server.URL()))
		due := []driver.Lease{acquire(t, d, request("renewed 1", "a")), acquire(t, d, request("renewed 2", "a")),
			acquire(t, d, request("renewed 3", "a"))}
		unlock := lockRow(t, pool, "snib_locks", "renewed 2")
		before := driver.Now()
		answers := d.Renew(t.Context(), due)
		for i, answer := range answers {
			if locked := i == 1; errors.Is(answer.Err, driver.ErrUnavailable) != locked || (answer.Err == nil) == locked {
				t.Errorf("Renew of lease %d beside a locked row = %v; want ErrUnavailable only for lease 1", i, answer.Err)
			}
		}
		if answers[0].Err == nil && answers[0].Start.Sub(before) < 0 {
			t.Error("the lease counts from before the renewal")
		}
		unlock()
		for i, answer := range d.Renew(t.Context(), due) {
			if answer.Err != nil {
				t.Errorf("Renew of lease %d = %v", i, answer.Err)
			}
		}
	})
}
