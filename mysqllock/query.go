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

// enter waits until there is room, and returns the function that leaves again.
func (t semaphore) enter(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
}

// A done is what the server says of a statement that writes. Whether it counts rows that were found or rows that were
// changed (clientFoundRows) is all the same: ours change each row that they find.
type done struct {
	rows int64
	id   int64 // that LAST_INSERT_ID was given

	// repeated means that the statement was sent again after its connection had failed. It may
	// have been executed twice: if it changed no rows, the first execution may have changed them.
	repeated bool
}

// exec runs a statement that writes.
func (d *Driver) exec(ctx context.Context, text string, args ...any) (out done, err error) {
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
		err = each(rows, func(rows *sql.Rows) error { seen = true; return scan(rows) })
		if seen && connectionFailed(err) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err) // it can't be begun anew: rows are out
		}
		return err
	})
	return err
}

// each reads a result to its end.
func each(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer func() { _ = rows.Close() }() // Err says all
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
	const undone, dead = 8, 32 // attempts; a dead connection of the pool may cost two of them
	for try := 1; ; try++ {
		err := d.once(ctx, text, fn)
		switch {
		case err == nil || ctx.Err() != nil:
			return repeated, d.explain(ctx, err)
		case connectionFailed(err) && !errors.Is(err, driver.ErrUnavailable) && try < dead:
			repeated = true
		case again(err) && try < undone:
			time.Sleep(rand.N(time.Duration(try) * time.Millisecond))
		default:
			return repeated, d.explain(ctx, err)
		}
	}
}

// once has fn run a statement by itself: in a transaction of its own only where the server would not end it otherwise.
func (d *Driver) once(ctx context.Context, text string, fn func(context.Context, *sql.Stmt) error) error {
	stmt, err := d.statement(ctx, text)
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

// statement returns a prepared statement, which takes one round trip, also where the user's settings would make it three.
func (d *Driver) statement(ctx context.Context, text string) (*sql.Stmt, error) {
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
		_ = stmt.Close() // somebody was quicker
		return other, nil
	}
	if s.prepared == nil {
		s.prepared = map[string]*sql.Stmt{}
	}
	s.prepared[text] = stmt
	return stmt, nil
}

// stagger waits for a random time before the next try to change a row. The time doubles with each
// race that was lost, up to half a second: those who lose wait in line for the row's lock before
// they know, and InnoDB compares each one in that line with all others.
func stagger(ctx context.Context, lost int) error {
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
