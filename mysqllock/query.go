package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
)

// A semaphore bounds how many connections are used at once for one purpose.
type semaphore chan struct{}

// enter waits until there is room, and returns a function that makes room again.
func (s semaphore) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
}

// An execResult is what the server says of a statement that writes. It does not matter whether
// the server counts the rows that were found or those that were changed (clientFoundRows): the
// driver's statements change each row that they find.
type execResult struct {
	rows int64
	id   int64 // the value of LAST_INSERT_ID

	// repeated means that the statement was sent again after its connection had failed. It may
	// have been executed twice: if it changed no rows, the first execution may have changed them.
	repeated bool
}

// exec runs a statement that writes.
func (d *Driver) exec(ctx context.Context, text string, args ...any) (out execResult, err error) {
	repeated, err := d.run(ctx, text, func(ctx context.Context, stmt *sql.Stmt) error {
		res, err := stmt.ExecContext(ctx, args...)
		if err != nil {
			return err
		}
		if out.rows, err = res.RowsAffected(); err != nil {
			return err
		}
		out.id, err = res.LastInsertId()
		return err
	})
	out.repeated = repeated
	return out, err
}

// query runs a statement that reads, and calls scan for each row.
func (d *Driver) query(ctx context.Context, text string, args []any, scan func(*sql.Rows) error) error {
	_, err := d.run(ctx, text, func(ctx context.Context, stmt *sql.Stmt) error {
		rows, err := stmt.QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		seen := false
		err = forEachRow(rows, func(rows *sql.Rows) error { seen = true; return scan(rows) })
		if seen && isConnectionError(err) {
			// The query can't be repeated, because the caller has seen rows.
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return err
	})
	return err
}

// forEachRow calls scan for each row of a result.
func forEachRow(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer func() { _ = rows.Close() }() // Err reports all errors
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// run has fn execute a statement. It retries if the server has rolled the statement back for a
// transient reason, or if the connection failed. repeated reports a retry of the second kind.
func (d *Driver) run(ctx context.Context, text string, fn func(context.Context, *sql.Stmt) error) (repeated bool, err error) {
	const maxRollbacks, maxFailures = 8, 32 // tries; a dead connection may cost two
	for try := 1; ; try++ {
		err := d.runOnce(ctx, text, fn)
		switch {
		case err == nil || ctx.Err() != nil:
			return repeated, d.explain(ctx, err)
		case isConnectionError(err) && !errors.Is(err, driver.ErrUnavailable) && try < maxFailures:
			repeated = true
		case isRolledBack(err) && try < maxRollbacks:
			time.Sleep(rand.N(time.Duration(try) * time.Millisecond))
		default:
			return repeated, d.explain(ctx, err)
		}
	}
}

// runOnce has fn execute a statement. It uses a transaction only if the server would not commit
// the statement by itself.
func (d *Driver) runOnce(ctx context.Context, text string, fn func(context.Context, *sql.Stmt) error) error {
	stmt, err := d.preparedStatement(ctx, text)
	if err != nil {
		return err
	}
	if !d.store.explicit.Load() {
		return fn(ctx, stmt)
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(ctx, tx.StmtContext(ctx, stmt)); err != nil {
		_ = tx.Rollback() // the first error says more
		return err
	}
	return tx.Commit()
}

// preparedStatement returns a prepared statement, which takes one round trip even where the
// user's settings would make it three.
func (d *Driver) preparedStatement(ctx context.Context, text string) (*sql.Stmt, error) {
	s := &d.store
	s.mu.Lock()
	stmt := s.prepared[text]
	s.mu.Unlock()
	if stmt != nil {
		return stmt, nil
	}
	stmt, err := d.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.prepared[text]; other != nil {
		_ = stmt.Close() // another goroutine was faster
		return other, nil
	}
	if s.prepared == nil {
		s.prepared = map[string]*sql.Stmt{}
	}
	s.prepared[text] = stmt
	return stmt, nil
}

// backOff waits for a random time before the next try to change a row. The time doubles with each
// race that was lost, up to half a second. A client that loses waits for the row's lock before it
// knows, and InnoDB compares each client in that queue with all others.
func backOff(ctx context.Context, lost int) error {
	if lost == 0 {
		return nil
	}
	timer := time.NewTimer(rand.N(time.Millisecond << min(lost, 9)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
