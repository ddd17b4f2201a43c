package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// The driver keeps one connection of the program's pool, its spare, for what must not wait for the
// program: renewals, releases, withdrawals and heartbeats. In a full pool they would wait for the
// program's own queries, and a few slow ones would lose all its locks. The spare is the connection
// of the first statement. If it fails, the next connection that the pool gives replaces it.

// leastConnections is how many connections a pool must have: the spare, and one for requests.
const leastConnections = 2

type urgentKey struct{}

// urgent marks the statements of a call that may use the spare.
func urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// connect returns a connection of the pool, or the spare if there is none, or if the statement is
// urgent and the spare is free first.
func (d *Driver) connect(ctx context.Context) (conn *sql.Conn, isSpare bool, err error) {
	wasFull := d.poolIsFull()
	if ctx.Value(urgentKey{}) == nil {
		if conn, err = d.db.Conn(ctx); err == nil || ctx.Err() != nil {
			return conn, false, d.explainPool(ctx, wasFull, err)
		}
		// The server may have no connection left because many processes have a spare. Each would wait
		// for the others. A watcher gives up its connection for the same reason.
		d.rows.NoteFull(d.explain(ctx, err))
		select {
		case conn = <-d.spare:
			return conn, true, nil
		default:
			return nil, false, err
		}
	}
	select {
	case conn = <-d.spare:
		return conn, true, nil
	default:
	}
	type result struct {
		conn *sql.Conn
		err  error
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	lent := make(chan result, 1)
	go func() {
		conn, err := d.db.Conn(inner)
		lent <- result{conn, err}
	}()
	select {
	case r := <-lent:
		if !isOutOfConnections(r.err) || d.lacksSpare.Load() {
			return r.conn, false, d.explainPool(ctx, wasFull, r.err)
		}
		d.rows.NoteFull(d.explain(ctx, r.err))
		select { // another urgent statement uses the spare, the only connection that there is
		case conn = <-d.spare:
			return conn, true, nil
		case <-time.After(pollInterval):
			return d.connect(ctx) // that statement may have failed, and given the connection up
		case <-ctx.Done():
			return nil, false, r.err
		}
	case conn = <-d.spare:
		go func() {
			if r := <-lent; r.err == nil {
				_ = r.conn.Close() // it returns to the pool
			}
		}()
		return conn, true, nil
	}
}

// disconnect gives a connection back that connect has returned. err is the result of its statement.
func (d *Driver) disconnect(conn *sql.Conn, isSpare bool, err error) {
	switch {
	case refusesWrites(err), isSpare && err != nil && (code(err) == 0 || isConnectionError(err)):
		hangUp(conn)
		if isSpare {
			d.lacksSpare.Store(true)
		}
	case isSpare, err == nil && d.lacksSpare.CompareAndSwap(true, false):
		d.spare <- conn
		if d.rows.Life.Over() {
			d.returnSpare()
		}
	default:
		_ = conn.Close() // it returns to the pool
	}
}

// returnSpare gives the spare back to the pool, unless a statement uses it.
func (d *Driver) returnSpare() {
	select {
	case conn := <-d.spare:
		_ = conn.Close()
	default:
	}
}

// explainPool returns err, the result of asking for a connection, and says so if the pool had none.
// wasFull tells whether the pool was full before: if not, it has asked the server. If the server
// does not answer, that is why the pool is full.
func (d *Driver) explainPool(ctx context.Context, wasFull bool, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if !wasFull {
		d.noteAnswer(ctx, err)
	} else if d.poolIsFull() && !d.unanswered.Load() {
		return &poolError{d.db.Stats().MaxOpenConnections, context.Cause(ctx)}
	}
	return err
}

// noteAnswer notes whether the server has answered, or the driver's own time limit is over. A
// caller who gives up says nothing of the server.
func (d *Driver) noteAnswer(ctx context.Context, err error) {
	cause := context.Cause(ctx)
	switch {
	case err == nil || code(err) != 0:
		d.unanswered.Store(false)
	case errors.Is(cause, driver.ErrUnavailable) && !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, context.DeadlineExceeded):
		d.unanswered.Store(true)
	}
}

// poolIsFull reports whether all connections of the pool are in use, as far as it has a limit.
func (d *Driver) poolIsFull() bool {
	s := d.db.Stats()
	return s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}

// A poolError means that a request has waited in vain for a connection of the pool. The server may
// be well.
type poolError struct {
	n     int
	cause error
}

func (e *poolError) Error() string {
	return fmt.Sprintf("%v: all %d connections of the program's pool are in use (SetMaxOpenConns)", driver.ErrUnavailable, e.n)
}

func (e *poolError) Unwrap() []error { return []error{driver.ErrUnavailable, driver.ErrFull, e.cause} }
