package pglock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// modes are the ways to run statements that a driver has found necessary. Its zero value is the quickest.
type modes struct {
	unprepared atomic.Bool // a pooler loses prepared statements
	explicit   atomic.Bool // the user's default isolation is not READ COMMITTED
}

// query runs one of our statements and calls scan for each row of its result. A statement that the server could not
// begin for reasons that we can do something about is run again.
func (d *Driver) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	const tries = 10
	for try := 1; ; try++ {
		err := d.queryOnce(ctx, sql, args, scan)
		switch c := code(err); {
		case err == nil:
			return nil
		case try == tries || ctx.Err() != nil:
			return d.explain(err)
		case c == noStatement || c == statementExists:
			d.store.unprepared.Store(true)
		case c == serializationFailure:
			d.store.explicit.Store(true)
		case c == deadlock: // with statements of the user's: ours lock in one order
		case c == lockNotAvailable, c == queryCanceled: // the user's limits of time, and the row was busy
			time.Sleep(time.Duration(try) * 5 * time.Millisecond)
		default:
			return d.explain(err)
		}
	}
}

func (d *Driver) queryOnce(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	if d.store.unprepared.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	if !d.store.explicit.Load() {
		return collect(d.pool.Query(ctx, sql, args...))(scan)
	}
	return pgx.BeginTxFunc(ctx, d.pool, ours(), func(tx pgx.Tx) error {
		return collect(tx.Query(ctx, sql, args...))(scan)
	})
}

// collect returns a function that reads a result to its end.
func collect(rows pgx.Rows, err error) func(scan func(pgx.Rows) error) error {
	return func(scan func(pgx.Rows) error) error {
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if scan == nil {
				continue
			}
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// count is a scan that counts rows.
func count(n *int) func(pgx.Rows) error {
	return func(pgx.Rows) error { *n++; return nil }
}
