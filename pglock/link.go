package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
)

// A link is the connection of a session. One goroutine has it: between the calls that others ask for, it waits for
// notifications, and so notices at once when the server ends the session. When there is nothing to do it pings.
type link struct {
	d    *Driver
	conn *pgx.Conn
	key  int32  // of the session, which it has locked
	pid  uint32 // of the server's process

	life context.Context // done when the link is over, with the reason
	end  context.CancelCauseFunc

	mu    sync.Mutex
	calls []*call
	wake  context.CancelFunc // ends the wait for notifications
	heard time.Time          // before the last statement that was answered
}

// A call is something to be done on the connection.
type call struct {
	ctx  context.Context
	run  func(context.Context) error
	sent driver.Instant
	done chan error // of one
}

// An errDoubt says that what the server holds for us is not known: its connection must end.
type errDoubt struct{ error }

func (e errDoubt) Unwrap() error { return e.error }

// connect begins a session.
func (d *Driver) connect(ctx context.Context) (*link, error) {
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{d: d, conn: conn, heard: time.Now()}
	if err := l.begin(ctx); err != nil {
		hangUp(conn)
		return nil, err
	}
	l.life, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// begin makes of a connection a session: the server ends it when it is silent for too long, and it has locked a key by
// which others see that it lives.
func (l *link) begin(ctx context.Context) error {
	err := direct(ctx, l.conn)
	var pooled errPooled
	if errors.As(err, &pooled) && !l.d.conf.pooled {
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
	limit := fmt.Sprintf(`SET idle_session_timeout = %d`, l.d.conf.idle.Milliseconds())
	if _, err := l.conn.Exec(ctx, limit, pgx.QueryExecModeSimpleProtocol); err != nil && code(err) != undefinedObject {
		return err
	}
	for locked := false; !locked; {
		l.key = rand.Int32N(1<<31-1) + 1 // 0 is for who makes the table
		err := l.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1::int, $2::int), pg_backend_pid()`, sessions, l.key).
			Scan(&locked, &l.pid)
		if err != nil {
			return err
		}
	}
	return nil
}

// do runs fn on the connection, with a context that ends with ctx or when the session may have ended. It returns a
// moment before its first statement was sent.
func (l *link) do(ctx context.Context, fn func(context.Context) error) (driver.Instant, error) {
	c := &call{ctx: context.WithoutCancel(ctx), run: fn, done: make(chan error, 1)}
	l.mu.Lock()
	l.calls = append(l.calls, c)
	if l.wake != nil {
		l.wake()
	}
	l.mu.Unlock()
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.life.Done():
		return driver.Instant{}, fmt.Errorf("%w: its session is over: %w", driver.ErrLost, context.Cause(l.life))
	case <-ctx.Done():
	}
	// A call that is cut off costs the connection, and all locks: so it goes on, and its outcome is undone.
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.life.Done():
	case <-time.After(life.Moment):
	}
	return driver.Instant{}, context.Cause(ctx)
}

// serve has the connection until it is over, and returns why.
func (l *link) serve() error {
	var err error
	for err == nil {
		err = l.turn()
	}
	if l.d.life.Over() {
		err = driver.ErrClosed
	}
	l.end(err)
	return err
}

// turn does what is asked for, or waits.
func (l *link) turn() error {
	l.mu.Lock()
	var c *call
	if len(l.calls) > 0 {
		c, l.calls = l.calls[0], l.calls[1:]
		l.mu.Unlock()
		return l.run(c)
	}
	ctx, cancel := context.WithDeadline(l.life, l.heard.Add(l.d.conf.idle/3))
	defer cancel()
	l.wake = cancel
	l.mu.Unlock()
	n, err := l.conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		l.d.notified(n.Payload)
		return nil
	case l.life.Err() != nil:
		return context.Cause(l.life)
	case ctx.Err() == nil || l.conn.IsClosed():
		return err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return l.run(&call{ctx: l.life, run: l.ping, done: make(chan error, 1)})
	}
	return nil
}

// run makes a call. The connection ends with it if it can't be trusted any more.
func (l *link) run(c *call) error {
	// The server may end the session from heard + idle on. A tenth before, its holders must know.
	ctx, cancel := context.WithDeadline(c.ctx, l.heard.Add(l.d.conf.idle*9/10))
	defer cancel()
	stop := context.AfterFunc(l.life, cancel)
	defer stop()
	began := time.Now()
	c.sent = driver.Now()
	err := c.run(ctx)
	if err == nil {
		l.heard = began
	}
	c.done <- err
	var doubt errDoubt
	if l.conn.IsClosed() || errors.As(err, &doubt) || err != nil && code(err) == "" && ctx.Err() != nil {
		return fmt.Errorf("the connection is of no use any more: %w", err)
	}
	return nil
}

// ping checks that the session is the one that it was.
func (l *link) ping(ctx context.Context) error {
	var pid uint32
	err := l.conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	if err == nil && pid != l.pid {
		err = errDoubt{errPooled{l.pid, pid}}
	}
	return err
}
