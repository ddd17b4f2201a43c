package pglock_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/pglock"
)

func TestIsOwner(t *testing.T) {
	t.Parallel()
	pool := dial(t, database(t).URL())
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	d := newDriver(t, pool)
	t.Run("Pgx", func(t *testing.T) {
		rowstest.IsOwner(t, d, func(name string, token uint64) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return d.IsOwner(t.Context(), tx, name, token) })
		})
	})
	t.Run("SQL", func(t *testing.T) {
		rowstest.IsOwner(t, d, func(name string, token uint64) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			return d.IsOwner(t.Context(), pglock.SQLTx(tx), name, token)
		})
	})
}

func TestIsOwnerKeepsTheLock(t *testing.T) {
	t.Parallel()
	pool := dial(t, database(t).URL())
	d := newDriver(t, pool)
	rowstest.IsOwnerKeepsTheLock(t, d, newDriver(t, pool), func() (isOwner func(token uint64) error, end func() error) {
		tx := begin(t, pool, "")
		return func(token uint64) error {
			err := d.IsOwner(t.Context(), tx, "a", token)
			usable(t, tx, "0")
			return err
		}, func() error { return tx.Rollback(t.Context()) }
	})
}
