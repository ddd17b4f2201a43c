package pglock_test

import (
	"context"
	"errors"
	"fmt"

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
			err := pglock.Tx(ctx, tx, "books/2026-11", pglock.TxNoWait())
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

// Often it is enough to lock a row of the data.
func ExampleRow() {
	ship := func(ctx context.Context, pool *pgxpool.Pool, order int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var status string
			err := pglock.Row(ctx, tx, 0, "SELECT status FROM orders WHERE id = $1", order).Scan(&status)
			switch {
			case errors.Is(err, snib.ErrHeld):
				return fmt.Errorf("order %d is being worked on: %w", order, err)
			case err != nil:
				return err
			case status != "paid":
				return fmt.Errorf("order %d is %s", order, status)
			}
			_, err = tx.Exec(ctx, "UPDATE orders SET status = 'shipped' WHERE id = $1", order)
			return err
		})
	}
	_ = ship
}
