package mysqllock

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

// A done is what the server says of a statement that writes. Whether it counts rows that were found or rows that were
// changed (clientFoundRows) is all the same: ours change each row that they find.
type done struct {
	rows int64
	id   int64 // that LAST_INSERT_ID was given
}

// exec runs a statement that writes.
func (d *Driver) exec(ctx context.Context, text string, args ...any) (out done, err error) {
	err = d.run(ctx, text, func(ctx context.Context, stmt *sql.Stmt) error {
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
	return out, err
}

// query runs a statement that reads, and calls scan for each row.
func (d *Driver) query(ctx context.Context, text string, args []any, scan func(*sql.Rows) error) error {
	return d.run(ctx, text, func(ctx context.Context, stmt *sql.Stmt) error {
		rows, err := stmt.QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		return each(rows, scan)
	})
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

// run has fn run a statement, and once more if the server has undone it for reasons that pass.
func (d *Driver) run(ctx context.Context, text string, fn func(context.Context, *sql.Stmt) error) error {
	const tries = 8
	for try := 1; ; try++ {
		err := d.once(ctx, text, fn)
		if err == nil || try == tries || !again(err) || ctx.Err() != nil {
			return d.explain(ctx, err)
		}
		time.Sleep(rand.N(time.Duration(try) * time.Millisecond))
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

// stagger waits for a random time, which is the longer the more often a race was lost.
func stagger(ctx context.Context, lost int) error {
	if lost == 0 {
		return nil
	}
	timer := time.NewTimer(rand.N(time.Duration(min(lost, 10)) * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
