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
	"github.com/sniblock/snib/driver/driverkit"
)

// closeCheckInterval is how often the driver checks, while the session holds locks, whether its
// connection was closed. A check is one system call; nothing is sent.
const closeCheckInterval = 10 * time.Millisecond

// errClosed ends a session whose connection was found closed.
var errClosed = errors.New("the server, or something on the way to it, has closed the connection")

// A link is the connection of a session. One goroutine owns it and makes the calls of all others.
// Between the calls it pings the server, and while the session holds locks it checks whether the
// connection was closed.
type link struct {
	*driverkit.SessionConn

	d     *Driver
	conn  *sql.Conn
	key   string // of the session, which holds it with GET_LOCK
	calls chan *driverkit.Call
}

// connect opens a session.
func (d *Driver) connect(ctx context.Context) (*link, error) {
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{SessionConn: driverkit.NewSessionConn(d.conf.sessionTimeout), d: d, conn: conn, calls: make(chan *driverkit.Call)}
	l.key = "snib-session-" + strings.ToLower(rand.Text())
	if err := l.setUp(ctx); err != nil {
		hangUp(conn)
		return nil, err
	}
	return l, nil
}

// setUp makes a session of a connection. It has the server end the session when it has been
// silent for too long, and locks a name by which other sessions see that this one lives.
func (l *link) setUp(ctx context.Context) error {
	limit := fmt.Sprintf(`SET SESSION wait_timeout = %d`, l.d.conf.sessionTimeout/time.Second)
	if _, err := l.conn.ExecContext(ctx, limit); err != nil {
		return err
	}
	var got bool
	if err := l.getLock(ctx, l.key, &got); err != nil {
		return err
	}
	err := l.ping(ctx)
	if doubt := (driverkit.UnknownOutcomeError{}); errors.As(err, &doubt) || err == nil && !got {
		return fmt.Errorf("%w connection: a pooler stands before the server, and each statement may go over another "+
			"connection; connect past it, or use rows (New)", driver.ErrInvalid)
	}
	return err
}

// do runs fn on the connection, with a context that ends when the session may have ended. It
// returns a time before the first statement of fn was sent.
func (l *link) do(ctx context.Context, fn func(context.Context) error) (driver.Instant, error) {
	c := driverkit.NewCall(ctx, fn)
	select {
	case l.calls <- c:
	case <-l.Context().Done(): // Wait returns the reason
	case <-ctx.Done(): // the connection is busy, perhaps because the server hangs
		return driver.Instant{}, fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
	return l.Wait(ctx, c)
}

// serve owns the connection until it ends, and returns the reason.
func (l *link) serve() (err error) {
	timer := time.NewTimer(l.waitTime())
	defer timer.Stop()
	for err == nil {
		select {
		case c := <-l.calls:
			err = l.run(c)
		case <-timer.C:
			if err = l.checkOpen(); err == nil && time.Now().After(l.Due()) {
				err = l.run(driverkit.NewCall(l.Context(), l.ping))
				l.d.life.Go(func() {
					ctx, cancel := context.WithTimeout(l.Context(), l.d.conf.sessionTimeout)
					defer cancel()
					l.d.session.checkRows(ctx)
				})
			}
		case <-l.Context().Done():
			err = context.Cause(l.Context())
		}
		timer.Reset(l.waitTime())
	}
	l.End(err)
	return err
}

// waitTime is how long serve waits for a call before it checks the connection or pings.
func (l *link) waitTime() time.Duration {
	due := time.Until(l.Due())
	if l.d.session.hasLocks() {
		due = min(due, closeCheckInterval)
	}
	return due
}

// checkOpen returns an error if the end of the connection has reached this host. It uses the
// check that go-sql-driver makes when it takes a connection out of the pool, which works on Unix
// unless checkConnLiveness is off.
func (l *link) checkOpen() error {
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

// run makes a call. It returns an error if the connection can't be used any more, which any error
// means that does not come from the server.
func (l *link) run(c *driverkit.Call) error {
	return l.Run(c, func(_ context.Context, err error) bool { return err != nil && code(err) == 0 })
}

// ping checks that the connection still leads to the same session.
func (l *link) ping(ctx context.Context) error {
	var ours sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT IS_USED_LOCK(?) = CONNECTION_ID()`, l.key).Scan(&ours)
	if err == nil && !ours.Bool {
		err = driverkit.UnknownOutcomeError{Err: errors.New("the session is another than it was")}
	}
	return err
}

// getLock tries GET_LOCK, which returns 1, 0 if the lock is taken, or NULL if something went
// wrong.
func (l *link) getLock(ctx context.Context, key string, got *bool) error {
	var answer sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, 0)`, key).Scan(&answer)
	if err == nil && !answer.Valid {
		err = driverkit.UnknownOutcomeError{Err: fmt.Errorf("GET_LOCK of %q = NULL", key)}
	}
	*got = answer.Bool
	return err
}

// releaseLock releases a lock that the session has. RELEASE_LOCK returns 1, 0 if another session
// has the lock, or NULL if nobody has it.
func (l *link) releaseLock(ctx context.Context, key string) error {
	var answer sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT RELEASE_LOCK(?)`, key).Scan(&answer)
	if err == nil && !answer.Bool {
		err = errors.New("a lock that we held was not ours any more")
	}
	if err != nil {
		return driverkit.UnknownOutcomeError{Err: err}
	}
	return nil
}
