package pglock_test

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/pglock"
)

// A job that works on data of the same database needs no lease: the lock lasts as long as the
// transaction.
func ExampleTx() {
	closeBooks := func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			err := pglock.Tx(ctx, tx, "books/2026-11", 0)
			if errors.Is(err, snib.ErrHeld) {
				return nil // another host is on it
			}
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO closed (month) VALUES ('2026-11')")
			return err
		})
	}
	_ = closeBooks
}
