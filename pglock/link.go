package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// A link is the connection of a session. Between its calls it waits for notifications, so it
// notices at once when the server ends the session.
type link struct {
	d    *Driver
	conn *pgx.Conn
	key  int32  // of the session, which holds its advisory lock
	pid  uint32 // of the server process
}

// connect opens a session.
func (d *Driver) connect(ctx context.Context) (rows.Conn, error) {
	conn, err := d.dial(ctx)
	if err == nil {
		l := &link{d: d, conn: conn}
		if err = l.setUp(ctx); err == nil {
			return l, nil
		}
		hangUp(conn)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, d.explain(err)
}

// setUp makes a session of a connection. It has the server end the session when it has been
// silent for too long, and locks a key by which other sessions see that this one lives.
func (l *link) setUp(ctx context.Context) error {
	err := checkDirect(ctx, l.conn)
	var pooled pooledError
	if errors.As(err, &pooled) && !l.d.conf.sessionPooler {
		return driver.Invalidf("connection: %w; locks of a session that go through a pooler in transaction mode belong to "+
			"the client that gets its connection next; connect past it with the option Listen, or use rows (New)", err)
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

// Key implements [rows.Conn].
func (l *link) Key() string { return strconv.Itoa(int(l.key)) }

// Idle implements [rows.Conn].
func (l *link) Idle(ctx context.Context) error { return l.d.receive(ctx, l.conn) }

// IsBroken implements [rows.Conn]. A connection that was cut off while it waited for an answer is
// of no use any more.
func (l *link) IsBroken(ctx context.Context, err error) bool {
	return l.conn.IsClosed() || err != nil && code(err) == "" && ctx.Err() != nil
}

// Close implements [rows.Conn].
func (l *link) Close() { hangUp(l.conn) }

// Ping implements [rows.Conn].
func (l *link) Ping(ctx context.Context) error {
	var pid uint32
	err := l.conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	if err == nil && pid != l.pid {
		err = driverkit.UnknownOutcomeError{Err: pooledError{l.pid, pid}}
	}
	return err
}

// Lock implements [rows.Conn].
func (l *link) Lock(ctx context.Context, le *lease) (bool, error) {
	return l.call(ctx, "pg_try_advisory_lock", le)
}

// errUnlocked means that somebody has released an advisory lock of the session.
var errUnlocked = errors.New("an advisory lock of this session was gone")

// Unlock implements [rows.Conn].
func (l *link) Unlock(ctx context.Context, le *lease) error {
	was, err := l.call(ctx, "pg_advisory_unlock", le)
	if err == nil && !was {
		err = errUnlocked
	}
	return err
}

// call calls a function with the advisory lock of a lease.
func (l *link) call(ctx context.Context, function string, le *lease) (ok bool, err error) {
	call := l.d.conf.key(le.Req.Name).call(function, le.Req.Shared || le.Req.Slots > 0)
	err = l.conn.QueryRow(ctx, `SELECT `+call.sql, call.args...).Scan(&ok)
	return ok, err
}
