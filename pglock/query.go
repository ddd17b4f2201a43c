package pglock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
	"github.com/sniblock/snib/internal/retry"
)

// modes are the ways to run statements that a driver has found necessary. Its zero value is the quickest.
type modes struct {
	unprepared atomic.Bool // a pooler loses prepared statements
	explicit   atomic.Bool // the user's default isolation is not READ COMMITTED
}

// query runs one of our statements, one that may be repeated, and calls scan for each row of its result. What keeps the
// server from running it is overcome where we can do so: stale connections of the pool, and the settings of the user. If
// ctx is done, the error is its cause.
func (d *Driver) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	return d.run(ctx, true, sql, args, scan)
}

// change runs a statement that finds a hold and ends it, and reports whether it found one. It is not sent again if it may
// have been run: it would find nothing. It waits for a connection as long as ctx lets it.
func (d *Driver) change(ctx context.Context, sql string, args []any) (found bool, err error) {
	err = d.patiently(ctx, func() error {
		return d.run(ctx, false, sql, args, func(pgx.Rows) error { found = true; return nil })
	})
	return found, err
}

// patiently repeats a statement while the server has no connection left.
func (d *Driver) patiently(ctx context.Context, run func() error) error {
	for outage := (retry.Outage{}); ; {
		asked := time.Now()
		err := run()
		if !errors.Is(err, driver.ErrFull) {
			return err
		}
		pause, _ := outage.Again(asked, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// tidy removes an entry from a row in the background, when that failed at the time for it: it would
// keep the lock for its TTL, and in a session for ever.
func (d *Driver) tidy(name, nonce string) {
	d.life.Go(func() {
		again := time.NewTicker(refreshEvery)
		defer again.Stop()
		for {
			select {
			case <-again.C:
			case <-d.life.Done():
				return
			}
			ctx, cancel := context.WithTimeout(d.life.Context(), life.Longest)
			err := d.query(ctx, d.sql.withdraw, []any{name, nonce}, nil)
			cancel()
			if err == nil {
				return
			}
		}
	})
}

func (d *Driver) run(ctx context.Context, repeatable bool, sql string, args []any, scan func(pgx.Rows) error) error {
	const tries = 10
	unlimited, stale := false, 0
	for try := 1; ; {
		answered := false
		err := d.queryOnce(ctx, unlimited, sql, args, func(rows pgx.Rows) error {
			answered = true
			if scan == nil {
				return nil
			}
			return scan(rows)
		})
		switch c := code(err); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isStale(err) && !answered && (repeatable || notRun(err)) && stale < int(d.pool.Stat().MaxConns()):
			stale++ // each time there is one fewer of them
			continue
		case try == tries:
			return d.explain(err)
		case c == noStatement || c == statementExists:
			d.store.unprepared.Store(true)
		case c == serializationFailure:
			d.store.explicit.Store(true)
		case c == deadlock: // with statements of the user's: ours lock in one order
		case c == lockNotAvailable, c == queryCanceled: // the user's limits of time, and the row was busy
			unlimited = true
		default:
			return d.explain(err)
		}
		try++
	}
}

// isStale reports whether an error says that a connection was of no use any more: it was there before, and the server has
// ended it in the meantime.
func isStale(err error) bool {
	if errors.As(err, new(*pgconn.ConnectError)) {
		return false
	}
	switch code(err) {
	case adminShutdown, crashShutdown, idleSessionTimeout:
		return true
	case "":
		return isTransient(err)
	}
	return false
}

// notRun reports whether a statement that failed on a stale connection was not run for certain: it was not sent, or the
// server said that it ends the connection instead.
func notRun(err error) bool {
	c := code(err)
	return c == adminShutdown || c == idleSessionTimeout || pgconn.SafeToRetry(err)
}

func (d *Driver) queryOnce(ctx context.Context, unlimited bool, sql string, args []any, scan func(pgx.Rows) error) error {
	if d.store.unprepared.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	if !unlimited && !d.store.explicit.Load() {
		return collect(d.pool.Query(ctx, sql, args...))(scan)
	}
	opts := ours()
	if unlimited { // our own contexts limit the time
		opts.BeginQuery = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0`
	}
	return pgx.BeginTxFunc(ctx, d.pool, opts, func(tx pgx.Tx) error {
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
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}
