package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
)

// watchInterval is how often the driver checks, while the session holds locks, whether its
// connection was closed. A check is one system call; nothing is sent.
const watchInterval = 10 * time.Millisecond

// errClosed ends a session whose connection was found closed.
var errClosed = errors.New("the server, or something on the way to it, has closed the connection")

// A link is the connection of a session. One goroutine owns it and makes the calls of all others.
// Between the calls it pings the server, and while the session holds locks it checks whether the
// connection was closed.
type link struct {
	*life.Line

	d     *Driver
	conn  *sql.Conn
	key   string // of the session, which has locked it
	calls chan *life.Call
}

// connect begins a session.
func (d *Driver) connect(ctx context.Context) (*link, error) {
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{Line: life.NewLine(d.conf.idle), d: d, conn: conn, calls: make(chan *life.Call)}
	l.key = "snib-session-" + strings.ToLower(rand.Text())
	if err := l.begin(ctx); err != nil {
		hangUp(conn)
		return nil, err
	}
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
	if doubt := (life.DoubtError{}); errors.As(err, &doubt) || err == nil && !got {
		return fmt.Errorf("%w connection: a pooler stands before the server, and each statement may go over another "+
			"connection; connect past it, or use rows (New)", driver.ErrInvalid)
	}
	return err
}

// do runs fn on the connection, with a context that ends when the session may have ended. It returns a moment before its first
// statement was sent.
func (l *link) do(ctx context.Context, fn func(context.Context) error) (driver.Instant, error) {
	c := life.NewCall(ctx, fn)
	select {
	case l.calls <- c:
	case <-l.Context().Done(): // as Wait will say
	case <-ctx.Done(): // the connection is busy, perhaps with a server that does not answer
		return driver.Instant{}, fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
	return l.Wait(ctx, c)
}

// serve has the connection until it is over, and returns why.
func (l *link) serve() (err error) {
	timer := time.NewTimer(l.pause())
	defer timer.Stop()
	for err == nil {
		select {
		case c := <-l.calls:
			err = l.run(c)
		case <-timer.C:
			if err = l.closed(); err == nil && time.Now().After(l.Due()) {
				err = l.run(life.NewCall(l.Context(), l.ping))
				l.d.life.Go(func() {
					ctx, cancel := context.WithTimeout(l.Context(), l.d.conf.idle)
					defer cancel()
					l.d.session.look(ctx)
				})
			}
		case <-l.Context().Done():
			err = context.Cause(l.Context())
		}
		timer.Reset(l.pause())
	}
	l.End(err)
	return err
}

// pause is how long serve waits for a call before it checks the connection or pings.
func (l *link) pause() time.Duration {
	due := time.Until(l.Due())
	if l.d.session.holds() {
		due = min(due, watchInterval)
	}
	return due
}

// closed returns an error if the end of the connection has reached this host. It uses the check
// that go-sql-driver makes when it takes a connection out of the pool, which works on Unix unless
// checkConnLiveness is off.
func (l *link) closed() error {
	err := l.conn.Raw(func(conn any) error {
		if c, ok := conn.(sqldriver.SessionResetter); ok {
			return c.ResetSession(l.Context())
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errClosed, err)
	}
	return nil
}

// run makes a call. An error that is none of the server's is the connection's.
func (l *link) run(c *life.Call) error {
	return l.Make(c, func(_ context.Context, err error) bool { return err != nil && code(err) == 0 })
}

// ping checks that the session is the one that it was.
func (l *link) ping(ctx context.Context) error {
	var ours sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT IS_USED_LOCK(?) = CONNECTION_ID()`, l.key).Scan(&ours)
	if err == nil && !ours.Bool {
		err = life.DoubtError{Err: errors.New("the session is another than it was")}
	}
	return err
}

// getLock tries GET_LOCK. Its answers are 1, 0 for a lock that is taken, and NULL for what went wrong.
func (l *link) getLock(ctx context.Context, key string, got *bool) error {
	var answer sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, 0)`, key).Scan(&answer)
	if err == nil && !answer.Valid {
		err = life.DoubtError{Err: fmt.Errorf("GET_LOCK of %q = NULL", key)}
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
		return life.DoubtError{Err: err}
	}
	return nil
}
