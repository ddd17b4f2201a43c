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
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// closeCheckInterval is how often the driver checks, while the session holds locks, whether its
// connection was closed. A check is one system call; nothing is sent.
const closeCheckInterval = 10 * time.Millisecond

// errClosed ends a session whose connection was found closed.
var errClosed = errors.New("the server, or something on the way to it, has closed the connection")

// A link is the connection of a session. Between its calls, while the session holds locks, it
// checks whether the connection was closed.
type link struct {
	d    *Driver
	conn *sql.Conn
	key  string // the session holds it with GET_LOCK, which shows that the session lives
}

// connect opens a session.
func (d *Driver) connect(ctx context.Context) (rows.Conn, error) {
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	l := &link{d: d, conn: conn, key: "snib-session-" + strings.ToLower(rand.Text())}
	if err := l.setUp(ctx); err != nil {
		hangUp(conn)
		return nil, d.explain(ctx, err)
	}
	return l, nil
}

// setUp makes a session of a connection. It has the server end the session after too long a
// silence, and locks the key by which other sessions see that this one lives.
func (l *link) setUp(ctx context.Context) error {
	limit := fmt.Sprintf(`SET SESSION wait_timeout = %d`, l.d.conf.sessionTimeout/time.Second)
	if _, err := l.conn.ExecContext(ctx, limit); err != nil {
		return err
	}
	got, err := l.getLock(ctx, l.key)
	if err != nil {
		return err
	}
	err = l.Ping(ctx)
	if doubt := (driverkit.UnknownOutcomeError{}); errors.As(err, &doubt) || err == nil && !got {
		return driver.Invalidf("connection: a pooler stands between this client and the server, and each statement may go over another " +
			"connection; connect past it, or use rows (New)")
	}
	return err
}

// Key implements [rows.Conn].
func (l *link) Key() string { return l.key }

// Idle implements [rows.Conn]. When a ping is due, it also checks the rows of the session's leases.
func (l *link) Idle(ctx context.Context) error {
	if !l.d.rows.HasLeases() {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(closeCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := l.checkOpen(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				l.d.rows.Life.Go(func() {
					ctx, cancel := context.WithTimeout(l.d.rows.Life.Context(), l.d.conf.sessionTimeout)
					defer cancel()
					l.d.checkRows(ctx)
				})
			}
			return nil
		}
	}
}

// checkOpen returns an error if the end of the connection has reached this host. It uses the
// check that go-sql-driver makes when it takes a connection out of the pool, which works on Unix
// unless checkConnLiveness is off.
func (l *link) checkOpen(ctx context.Context) error {
	err := l.conn.Raw(func(conn any) error {
		if c, ok := conn.(sqldriver.SessionResetter); ok {
			return c.ResetSession(ctx)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errClosed, err)
	}
	return nil
}

// IsBroken implements [rows.Conn]. After an error that does not come from the server, the
// connection can't be used any more.
func (l *link) IsBroken(_ context.Context, err error) bool { return err != nil && code(err) == 0 }

// Close implements [rows.Conn].
func (l *link) Close() { hangUp(l.conn) }

// Ping implements [rows.Conn].
func (l *link) Ping(ctx context.Context) error {
	var ours sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT IS_USED_LOCK(?) = CONNECTION_ID()`, l.key).Scan(&ours)
	if err == nil && !ours.Bool {
		err = driverkit.UnknownOutcomeError{Err: errors.New("the connection belongs to another session now")}
	}
	return err
}

// Lock implements [rows.Conn].
func (l *link) Lock(ctx context.Context, le *lease) (bool, error) {
	return l.getLock(ctx, l.d.conf.key(le.Req.Name))
}

// getLock tries GET_LOCK. The server answers 1 if it has granted the lock, 0 if the lock is taken,
// or NULL after an error.
func (l *link) getLock(ctx context.Context, key string) (got bool, err error) {
	var answer sql.NullBool
	err = l.conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, 0)`, key).Scan(&answer)
	if err == nil && !answer.Valid {
		err = driverkit.UnknownOutcomeError{Err: fmt.Errorf("GET_LOCK of %q = NULL", key)}
	}
	return answer.Bool, err
}

// Unlock implements [rows.Conn]. To RELEASE_LOCK, the server answers 1 if it has released the lock,
// 0 if another session has it, or NULL if nobody has it.
func (l *link) Unlock(ctx context.Context, le *lease) error {
	var answer sql.NullBool
	err := l.conn.QueryRowContext(ctx, `SELECT RELEASE_LOCK(?)`, l.d.conf.key(le.Req.Name)).Scan(&answer)
	if err == nil && !answer.Bool {
		err = errors.New("a lock of this session was gone")
	}
	return err
}
