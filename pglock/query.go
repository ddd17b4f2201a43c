package pglock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
)

// queryModes are the ways to run statements that have turned out to be necessary. The zero value
// is the fastest.
type queryModes struct {
	unprepared atomic.Bool // a pooler loses prepared statements
	explicit   atomic.Bool // the user's default isolation is not READ COMMITTED
}

// query runs one of the driver's statements, which must be safe to repeat, and calls scan for
// each row of its result. It retries if the pool's connection was stale, or if settings of the
// user made the statement fail. If ctx is done, the error is its cause.
func (d *Driver) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	return d.run(ctx, func() {}, nil, sql, args, scan)
}

// run is query for statements that are not always repeated. Before run repeats a statement that the
// server may have executed, or may still execute, it calls beforeRepeat. If that is nil, run does
// not repeat such a statement. Before each try it calls reset, unless that is nil: a statement may
// have failed after scan had seen rows, for example at the commit. These rows do not count, and the
// repeated statement may not return them. The statement examine is run in a transaction from the
// first try on.
func (d *Driver) run(ctx context.Context, beforeRepeat, reset func(), sql string, args []any,
	scan func(pgx.Rows) error) error {
	const tries = 10
	unlimited, created, stale := sql == d.sql.Examine, false, 0
	oldConns := int(d.pool.Stat().TotalConns())
	for try := 1; ; {
		answered := false
		if reset != nil {
			reset()
		}
		err := d.runOnce(ctx, unlimited || d.modes.explicit.Load(), sql, args, func(rows pgx.Rows) error {
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
		case errors.Is(err, errNotReplicated) && beforeRepeat != nil && try < tries:
			beforeRepeat() // another change of the row waits again, for this one, too
		case isStale(err) && !answered && (beforeRepeat != nil || wasNotRun(err)) && stale < int(d.pool.Stat().MaxConns()):
			if !wasNotRun(err) {
				beforeRepeat()
			}
			stale++ // each retry leaves one fewer of them
			continue
		case refusesWrites(err) && stale < oldConns: // runOnce has thrown that connection away
			stale++
			continue
		case c == undefinedTable && !created:
			if err := d.create(ctx); err != nil {
				return err
			}
			created = true // now the locks that it had are lost, and nothing else is wrong
			continue
		case try == tries:
			return d.explain(err)
		case c == noStatement || c == statementExists:
			d.modes.unprepared.Store(true)
		case c == serializationFailure:
			d.modes.explicit.Store(true)
		case c == deadlock: // with a statement of the user: ours lock rows in one order
		case c == lockNotAvailable && unlimited: // the statement has a limit of its own
			return errRowLocked
		case c == lockNotAvailable, c == queryCanceled, c == idleInTransaction, c == transactionTimeout:
			unlimited = true // the user's limits, and the row was busy or this process stood still
		default:
			return d.explain(err)
		}
		try++
	}
}

// isStale reports whether err means that the statement was sent on an old connection that the
// server had ended in the meantime.
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

// wasNotRun reports whether a statement that failed on a stale connection was certainly not
// executed: it was not sent, or the server answered that it ends the connection instead.
func wasNotRun(err error) bool {
	c := code(err)
	return c == adminShutdown || c == idleSessionTimeout || pgconn.SafeToRetry(err)
}

type urgentKey struct{}

// urgent marks statements that wait for no row, or for a second at most.
func urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// runOnce runs a statement on a connection of the pool, one of which is left to urgent ones: the
// others may all wait for rows that somebody has locked. It throws the connection away if the
// server refuses writes: the next one may lead to the server that has replaced it.
func (d *Driver) runOnce(ctx context.Context, inTx bool, sql string, args []any, scan func(pgx.Rows) error) error {
	if ctx.Value(urgentKey{}) == nil {
		select {
		case d.others <- struct{}{}:
			defer func() { <-d.others }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil && d.rows.Life.Over() {
		return driver.ErrClosed // the pool is closed, too
	}
	if err != nil {
		return err
	}
	defer conn.Release()
	err = syncError(conn, d.runOn(ctx, conn, inTx, sql, args, scan))
	if refusesWrites(err) {
		hangUp(conn.Conn())
	}
	if conn.Conn().IsClosed() {
		conn.Hijack() // the pool would keep its place until it has said goodbye to the server
	}
	return err
}

// runOn runs a statement on a connection, inTx in a transaction without the user's settings.
func (d *Driver) runOn(ctx context.Context, conn *pgxpool.Conn, inTx bool, sql string, args []any,
	scan func(pgx.Rows) error) error {
	if d.modes.unprepared.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	if !inTx {
		return forEachRow(conn.Query(ctx, sql, args...))(scan)
	}
	return pgx.BeginTxFunc(ctx, conn, txOptions(), func(tx pgx.Tx) error {
		return forEachRow(tx.Query(ctx, sql, args...))(scan)
	})
}

// forEachRow takes the results of a Query, and returns a function that calls scan for each row.
func forEachRow(rows pgx.Rows, err error) func(scan func(pgx.Rows) error) error {
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
