package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
)

// A link is the connection of a session. One goroutine has it: it does what others ask for, and pings when there is nothing
// to do.
type link struct {
	d    *Driver
	conn *sql.Conn
	key  string // of the session, which has locked it

	life  context.Context // done when the link is over, with the reason
	end   context.CancelCauseFunc
	calls chan *call
	heard time.Time // before the last statement that was answered; of the goroutine
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
	l := &link{d: d, conn: conn, heard: time.Now(), calls: make(chan *call), key: "snib-session-" + strings.ToLower(rand.Text())}
	if err := l.begin(ctx); err != nil {
		hangUp(conn)
		return nil, err
	}
	l.life, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// begin makes of a connection a session: the server ends it when it is silent for too long, and it has locked a name by
// which others see that it lives.
func (l *link) begin(ctx context.Context) error {
	limit := fmt.Sprintf(`SET SESSION wait_timeout = %d`, l.d.conf.idle/time.Second)
	if _, err := l.conn.ExecContext(ctx, limit); err != nil {
		return err
	}
	var got bool
	if err := l.getLock(ctx, l.key, &got); err != nil {
		return err
	}
	err := l.ping(ctx)
	if doubt := (errDoubt{}); errors.As(err, &doubt) || err == nil && !got {
		return fmt.Errorf("%w connection: a pooler stands before the server, and each statement may go over another "+
			"connection; connect past it, or use rows (New)", driver.ErrInvalid)
	}
	return err
}

// do runs fn on the connection, with a context that ends with ctx or when the session may have ended. It returns a moment
// before its first statement was sent.
func (l *link) do(ctx context.Context, fn func(context.Context) error) (driver.Instant, error) {
	c := &call{ctx: context.WithoutCancel(ctx), run: fn, done: make(chan error, 1)}
	over := func() (driver.Instant, error) {
		return driver.Instant{}, fmt.Errorf("%w: its session is over: %w", driver.ErrLost, context.Cause(l.life))
	}
	select {
	case l.calls <- c:
	case <-l.life.Done():
		return over()
	case <-ctx.Done():
		return driver.Instant{}, context.Cause(ctx)
	}
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.life.Done():
		return over()
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
func (l *link) serve() (err error) {
	timer := time.NewTimer(l.d.conf.idle / 3)
	defer timer.Stop()
	for err == nil {
		select {
		case c := <-l.calls:
			err = l.run(c)
		case <-timer.C:
			err = l.run(&call{ctx: l.life, run: l.ping, done: make(chan error, 1)})
			l.d.life.Go(func() {
				ctx, cancel := context.WithTimeout(l.life, l.d.conf.idle)
				defer cancel()
				l.d.session.look(ctx)
			})
		case <-l.life.Done():
			err = context.Cause(l.life)
		}
		timer.Reset(time.Until(l.heard.Add(l.d.conf.idle / 3)))
	}
	l.end(err)
	return err
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
	if err != nil && (errors.As(err, &doubt) || code(err) == 0) {
		return fmt.Errorf("the connection is of no use any more: %w", err)
	}
	return nil
}

// ping checks that the session is the one that it was.
func (l *link) ping(ctx context.Context) error {
	var ours sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT IS_USED_LOCK(?) = CONNECTION_ID()`, l.key).Scan(&ours)
	if err == nil && !ours.Bool {
		err = errDoubt{errors.New("the session is another than it was")}
	}
	return err
}

// getLock tries GET_LOCK. Its answers are 1, 0 for a lock that is taken, and NULL for what went wrong.
func (l *link) getLock(ctx context.Context, key string, got *bool) error {
	var answer sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, 0)`, key).Scan(&answer)
	if err == nil && !answer.Valid {
		err = errDoubt{fmt.Errorf("GET_LOCK of %q = NULL", key)}
	}
	*got = answer.Bool
	return err
}

// releaseLock gives up a lock that the session has. Its answers are 1, 0 for a stranger's lock, and NULL for nobody's.
func (l *link) releaseLock(ctx context.Context, key string) error {
	var answer sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT RELEASE_LOCK(?)`, key).Scan(&answer)
	if err == nil && !answer.Bool {
		err = errors.New("a lock that we held was not ours any more")
	}
	if err != nil {
		return errDoubt{err}
	}
	return nil
}
