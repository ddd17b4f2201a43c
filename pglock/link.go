package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A link is the connection of a session. One goroutine owns it and makes the calls of all others.
// Between the calls it waits for notifications, so it notices at once when the server ends the
// session. When the connection has been idle for too long, it pings the server.
type link struct {
	*driverkit.SessionConn

	d    *Driver
	conn *pgx.Conn
	key  int32  // of the session, which holds its advisory lock
	pid  uint32 // of the server process

	mu         sync.Mutex
	calls      []*driverkit.Call
	cancelWait context.CancelFunc // ends the wait for notifications
}

// connect opens a session.
func (d *Driver) connect(ctx context.Context) (*link, error) {
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{SessionConn: driverkit.NewSessionConn(d.conf.sessionTimeout), d: d, conn: conn}
	if err := l.setUp(ctx); err != nil {
		hangUp(conn)
		return nil, err
	}
	return l, nil
}

// setUp makes a session of a connection. It has the server end the session when it has been
// silent for too long, and locks a key by which other sessions see that this one lives.
func (l *link) setUp(ctx context.Context) error {
	err := checkDirect(ctx, l.conn)
	var pooled pooledError
	if errors.As(err, &pooled) && !l.d.conf.sessionPooler {
		return fmt.Errorf("%w connection: %w; locks of a session that go through a pooler in transaction mode belong to "+
			"whoever gets its connection next; connect past it with the option Listen, or use rows (New)", driver.ErrInvalid, err)
	}
	if err != nil && !errors.As(err, &pooled) {
		return err
	}
	if _, err := l.conn.Exec(ctx, `SET statement_timeout = 0; SET lock_timeout = 0; SET default_transaction_isolation =
		'read committed'; LISTEN `+l.d.channel(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	limit := fmt.Sprintf(`SET idle_session_timeout = %d`, l.d.conf.sessionTimeout.Milliseconds())
	if _, err := l.conn.Exec(ctx, limit, pgx.QueryExecModeSimpleProtocol); err != nil && code(err) != undefinedObject {
		return err
	}
	for locked := false; !locked; {
		l.key = rand.Int32N(1<<31-1) + 1 // 0 is for creating the table
		err := l.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1::int, $2::int), pg_backend_pid()`, sessionKeyClass, l.key).
			Scan(&locked, &l.pid)
		if err != nil {
			return err
		}
	}
	return nil
}

// do runs fn on the connection, with a context that ends when the session may have ended. It
// returns a time before the first statement of fn was sent.
func (l *link) do(ctx context.Context, fn func(context.Context) error) (driver.Instant, error) {
	c := driverkit.NewCall(ctx, fn)
	l.mu.Lock()
	l.calls = append(l.calls, c)
	if l.cancelWait != nil {
		l.cancelWait()
	}
	l.mu.Unlock()
	return l.Wait(ctx, c)
}

// serve owns the connection until it ends, and returns the reason.
func (l *link) serve() error {
	var err error
	for err == nil {
		err = l.step()
	}
	if l.d.life.Over() {
		err = driver.ErrClosed
	}
	l.End(err)
	return err
}

// step makes the next call. If there is none, it waits for a notification, or pings when that is
// due.
func (l *link) step() error {
	l.mu.Lock()
	if len(l.calls) > 0 {
		c := l.calls[0]
		l.calls = l.calls[1:]
		l.mu.Unlock()
		return l.run(c)
	}
	ctx, cancel := context.WithDeadline(l.Context(), l.Due())
	defer cancel()
	l.cancelWait = cancel
	l.mu.Unlock()
	n, err := l.conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		l.d.onNotification(n.Payload)
		return nil
	case l.Context().Err() != nil:
		return context.Cause(l.Context())
	case ctx.Err() == nil || l.conn.IsClosed():
		return err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return l.run(driverkit.NewCall(l.Context(), l.ping))
	}
	return nil
}

// run makes a call. It returns an error if the connection can't be used any more: it is closed,
// or was cut off while it waited for an answer.
func (l *link) run(c *driverkit.Call) error {
	return l.Run(c, func(ctx context.Context, err error) bool {
		return l.conn.IsClosed() || err != nil && code(err) == "" && ctx.Err() != nil
	})
}

// ping checks that the connection still leads to the same session.
func (l *link) ping(ctx context.Context) error {
	var pid uint32
	err := l.conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	if err == nil && pid != l.pid {
		err = driverkit.UnknownOutcomeError{Err: pooledError{l.pid, pid}}
	}
	return err
}
