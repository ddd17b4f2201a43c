package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/pglock"
)

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

// A program that uses database/sql, or a library on top of it such as GORM or bun, gives the driver
// a pool of pgx, and the driver connects as that does. The pool of the program may be made of it.
func ExampleNew_databaseSQL() {
	open := func(ctx context.Context, dsn string) (*snib.Locker, *sql.DB, error) {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		db := stdlib.OpenDBFromPool(pool) // for gorm.Open, bun.NewDB, or the program itself
		locks, err := pglock.New(pool)
		if err != nil {
			return nil, nil, err
		}
		locker, err := snib.New(locks)
		return locker, db, err
	}
	_ = open
}

// With database/sql, over pgx/stdlib or lib/pq, the transaction is passed by SQLTx. The commit
// writes the event, and ends the lock.
func ExampleSQLTx() {
	start := func(ctx context.Context, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // changes nothing after the commit

		if err := pglock.Tx(ctx, pglock.SQLTx(tx), "orders", 0); err != nil {
			return err // snib.ErrHeld: another host is on it
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO order_events (event) VALUES ('started')"); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = start
}
