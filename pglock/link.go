package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// lingerTime is how long a link waits for the next call before it idles: to interrupt an idle
// connection takes longer than most calls.
const lingerTime = time.Millisecond

var (
	// errSessionOver means that a session has ended, and what it held with it.
	errSessionOver = errors.New("its session is over")

	// errUnlocked means that somebody has released an advisory lock of the session.
	errUnlocked = errors.New("an advisory lock of this session was gone")
)

// An untrustedError means that it is not known what the session holds, or that it must not hold
// anything. The session must end.
type untrustedError struct{ err error }

func (e untrustedError) Error() string { return e.err.Error() }

func (e untrustedError) Unwrap() error { return e.err }

// A link is a connection and the server's session on it. One goroutine owns the connection and
// makes the calls of all others. Between the calls it reads, so that it notices at once when the
// server ends the session, and asks the server at least every third of the timeout whether all
// is well.
type link struct {
	s      *Session
	conn   *pgx.Conn
	pid    uint32          // of the server's process
	ctx    context.Context // done when the session is over; the cause says why
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when the holders know that the session is over
	next   chan struct{} // capacity 1: another call has come

	// Only the link's goroutine uses these.
	lastSuccess time.Time // when the last call was sent that the server has answered
	called      bool      // the last step made a call

	mu       sync.Mutex
	calls    []*linkCall
	stopIdle context.CancelFunc

	// Guarded by Session.mu:
	held      map[int64]*sessionLease // by key: the server would grant a session a lock again that it has
	waiting   *sessionLease           // for which the link waits in the server's queue
	idleSince time.Time               // if the link is in Session.idle
	isBeside  bool                    // the link is counted in Session.beside
}

// A linkCall is a function to run on a connection.
type linkCall struct {
	run    func(context.Context) error
	undo   func(context.Context) error // undoes run if its caller has given up; nil if there is nothing to undo
	isWait bool                        // the server answers when another session releases a lock

	sent driver.Instant // before run was called
	done chan error     // capacity 1

	mu       sync.Mutex
	finished bool
	givenUp  bool
}

// finish stores the result of a call, unless its caller has given up.
func (c *linkCall) finish(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.givenUp {
		return false
	}
	c.finished = true
	c.done <- err
	return true
}

// giveUp gives a call up, unless it is finished.
func (c *linkCall) giveUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.givenUp = !c.finished
	return c.givenUp
}

// open opens a connection, and starts the goroutine that owns it.
func (s *Session) open(ctx context.Context, beside bool) (*link, error) {
	conn, err := dial(ctx, s.pool, s.conf.listen)
	if err == nil {
		l := &link{s: s, conn: conn, ended: make(chan struct{}), next: make(chan struct{}, 1),
			held: map[int64]*sessionLease{}, isBeside: beside}
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
		if err = l.setUp(ctx); err == nil {
			err = s.start(l)
		}
		if err == nil {
			return l, nil
		}
		hangUp(conn)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, explain(err)
}

// start starts the goroutine of a link.
func (s *Session) start(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[l] = true
	if !s.life.Go(func() { s.onEnd(l, l.serve()) }) {
		delete(s.links, l)
		return driver.ErrClosed
	}
	return nil
}

// setUp makes a session of a connection.
func (l *link) setUp(ctx context.Context) error {
	err := checkDirect(ctx, l.conn)
	if errors.As(err, new(pooledError)) {
		return driver.Invalidf("connection: %w; the locks of a session belong to the server's connection, which a pooler lends to "+
			"its next client; connect past it with the option Listen, or use rows (New)", err)
	}
	if err != nil {
		return err
	}
	l.pid = l.conn.PgConn().PID()
	l.lastSuccess = time.Now()
	timeout := l.s.conf.sessionTimeout
	var pid uint32
	err = l.conn.QueryRow(ctx, l.s.sql.setUp, fmt.Sprint(timeout.Milliseconds()),
		fmt.Sprint(max(timeout/3, time.Second).Round(time.Second).Seconds()),
		sessionName(l.conn.PgConn().ParameterStatus("application_name"))).Scan(&pid, nil)
	if err = l.check(pid, false, err); err != nil {
		return err
	}
	// A server on a system that can't check a connection while it waits refuses this.
	_, err = l.conn.Exec(ctx, fmt.Sprintf("SET client_connection_check_interval = %d", (timeout/3).Milliseconds()), pgx.QueryExecModeSimpleProtocol)
	if err != nil && code(err) == "" {
		return err
	}
	_, err = l.alive(ctx)
	return err
}

// alive checks that the session lives, and that the server takes writes. It returns the server's
// clock in microseconds.
func (l *link) alive(ctx context.Context) (clock int64, err error) {
	return l.where(ctx, l.s.sql.alive)
}

// where runs a statement that reads what session_alive.sql reads, and checks by which process of
// the server it was run: a pooler may send each statement to another server.
func (l *link) where(ctx context.Context, sql string, args ...any) (clock int64, err error) {
	var pid uint32
	var refuses bool
	err = l.conn.QueryRow(ctx, sql, args...).Scan(&pid, &clock, &refuses)
	return clock, l.check(pid, refuses, err)
}

// check returns err, or the reason why the session can't be trusted any more.
func (l *link) check(pid uint32, refusesWrites bool, err error) error {
	switch {
	case err != nil:
		return err
	case pid != l.pid:
		return untrustedError{pooledError{l.pid, pid}}
	case refusesWrites:
		return untrustedError{errDemoted}
	}
	return nil
}

// serve owns the connection until the session ends, and returns the reason.
func (l *link) serve() (err error) {
	for err == nil {
		err = l.step()
	}
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return err
}

// step makes the next call. If there is none, it idles, or asks whether all is well when that is
// due.
func (l *link) step() error {
	l.mu.Lock()
	if len(l.calls) > 0 {
		c := l.calls[0]
		l.calls = l.calls[1:]
		l.mu.Unlock()
		l.called = true
		return l.run(c)
	}
	if l.called {
		l.called = false
		l.mu.Unlock()
		select {
		case <-l.next:
		case <-time.After(lingerTime):
		case <-l.ctx.Done():
		}
		return l.ctx.Err()
	}
	ctx, cancel := context.WithDeadline(l.ctx, l.lastSuccess.Add(l.s.conf.sessionTimeout/3))
	defer cancel()
	l.stopIdle = cancel
	l.mu.Unlock()
	_, err := l.conn.WaitForNotification(ctx) // the session listens to nothing
	switch {
	case ctx.Err() == nil || l.conn.IsClosed():
		return err
	case l.ctx.Err() != nil:
		return l.ctx.Err()
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if l.s.retire(l) {
			return errNotNeeded
		}
		c := l.ping()
		c.done = make(chan error, 1)
		return l.run(c)
	}
	return nil
}

// errNotNeeded ends a link that nobody has used for a while.
var errNotNeeded = errors.New("the connection is not needed any more")

// run makes a call. It returns an error if the session can't be trusted any more.
func (l *link) run(c *linkCall) error {
	ctx, cancel := l.ctx, context.CancelFunc(func() {})
	if !c.isWait {
		// The server may end the session a timeout after lastSuccess. The holders must know a tenth of
		// that time earlier.
		ctx, cancel = context.WithDeadline(l.ctx, l.lastSuccess.Add(l.s.conf.sessionTimeout*9/10))
	}
	defer cancel()
	began := time.Now()
	c.sent = driver.Now()
	err := c.run(ctx)
	if err == nil && !c.isWait {
		l.lastSuccess = began
	}
	broken := l.isBroken(ctx, err)
	if broken {
		err = fmt.Errorf("%w: %w", errSessionOver, err)
	}
	if !c.finish(err) && err == nil && c.undo != nil {
		err = c.undo(ctx)
		broken = err != nil
	}
	if broken {
		return fmt.Errorf("the connection can't be used any more: %w", err)
	}
	return nil
}

// isBroken reports whether a session can't be used any more after a call with this context and this
// error. An error of the server ends one statement, and not the session.
func (l *link) isBroken(ctx context.Context, err error) bool {
	return l.conn.IsClosed() || errors.As(err, new(untrustedError)) || err != nil && code(err) == "" && ctx.Err() != nil
}

// send has the link make a call.
func (l *link) send(c *linkCall) *linkCall {
	c.done = make(chan error, 1)
	l.mu.Lock()
	l.calls = append(l.calls, c)
	if l.stopIdle != nil {
		l.stopIdle()
	}
	l.mu.Unlock()
	select {
	case l.next <- struct{}{}:
	default:
	}
	return c
}

// do makes a call, and returns our clock before it was sent. When ctx ends, do gives up, and the
// call goes on: one that is cut off costs the session, with all its locks. So ctx comes from
// [driverkit.Detached], which leaves a call the time to end.
func (l *link) do(ctx context.Context, c *linkCall) (driver.Instant, error) {
	l.send(c)
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.ctx.Done():
		return driver.Instant{}, l.overError()
	case <-ctx.Done():
	}
	if !c.giveUp() {
		return c.sent, <-c.done
	}
	return driver.Instant{}, context.Cause(ctx)
}

// overError returns the error of calls of a session that is over.
func (l *link) overError() error {
	return fmt.Errorf("%w: %w", errSessionOver, context.Cause(l.ctx))
}

// onEnd ends what depends on a session that has ended. The holders are told before the server frees
// their locks, if it has not done so already.
func (s *Session) onEnd(l *link, cause error) {
	if s.life.Over() {
		cause = driver.ErrClosed
	}
	s.mu.Lock()
	l.cancel(cause)
	delete(s.links, l)
	s.idle = slices.DeleteFunc(s.idle, func(other *link) bool { return other == l })
	if l.isBeside {
		s.beside--
	}
	if s.main == l {
		s.main = nil
		for other := range s.links { // nothing tells those that wait any more whether the server is well
			if len(other.held) == 0 {
				other.cancel(cause)
			}
		}
	}
	for _, h := range l.held {
		h.loseLocked(fmt.Errorf("%w: %w: %w", driver.ErrLost, errSessionOver, cause))
	}
	clear(l.held)
	s.mu.Unlock()
	close(l.ended)
	hangUp(l.conn)
	select {
	case <-l.conn.PgConn().CleanupDone(): // a statement that was under way is cancelled
	case <-time.After(driverkit.CancelDelay):
	}
}

// take tries to take the lock of h, without a wait.
func (l *link) take(ctx context.Context, h *sessionLease) (got bool, err error) {
	c := &linkCall{undo: func(ctx context.Context) error { return l.free(ctx, h) }}
	c.run = func(ctx context.Context) error {
		if l.hasKey(h) {
			return nil
		}
		var pid uint32
		var clock int64
		var got, refuses bool
		err := l.conn.QueryRow(ctx, l.s.sql.take, h.key, h.req.Shared).Scan(&got, &pid, &clock, &refuses)
		if err = l.check(pid, refuses, err); err == nil && got {
			l.keep(h, clock, c.sent)
		}
		return l.without(ctx, h, err)
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	_, err = l.do(inner, c)
	return err == nil && l.s.isHeld(h), err
}

// without returns err, the result of a statement that takes the lock of h. If the server has
// answered with an error, the session may have the lock all the same: an advisory lock stays
// when its statement is rolled back, as by a cancellation that comes late. So without releases
// it.
func (l *link) without(ctx context.Context, h *sessionLease, err error) error {
	if code(err) == "" || l.conn.IsClosed() {
		return err
	}
	if _, failed := l.conn.Exec(ctx, l.s.sql.free, h.key, h.req.Shared); failed != nil {
		return untrustedError{failed}
	}
	return err
}

// hasKey reports whether the session has the key of h for another hold.
func (l *link) hasKey(h *sessionLease) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.held[h.key] != nil
}

// keep notes a lock that the server has given to the session.
func (l *link) keep(h *sessionLease, clock int64, since driver.Instant) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastToken = driver.NextToken(s.lastToken, time.UnixMicro(clock)) // two readers may see one microsecond
	h.link, h.token, h.since, h.state = l, s.lastToken, since, holdHeld
	l.held[h.key] = h
}

// wait waits for the lock of h in the server's queue. The link has no locks, because it can make no
// other call meanwhile. If ctx ends, the link ends, too.
func (l *link) wait(ctx context.Context, h *sessionLease) error {
	c := l.send(&linkCall{isWait: true, run: func(ctx context.Context) error {
		if _, err := l.where(ctx, l.s.sql.wait, h.key, h.req.Shared); err != nil {
			return l.without(ctx, h, err)
		}
		// The lock may have been ours for a while: the server counts silence from then on.
		ctx, cancel := context.WithTimeout(ctx, l.s.conf.sessionTimeout*9/10)
		defer cancel()
		began, since := time.Now(), driver.Now()
		clock, err := l.alive(ctx)
		if code(err) == queryCanceled { // the caller has given up as the lock became ours
			clock, err = l.alive(ctx)
		}
		if err == nil {
			l.lastSuccess = began
			l.keep(h, clock, since)
		} else {
			err = untrustedError{err}
		}
		return err
	}})
	select {
	case err := <-c.done:
		return err
	case <-l.ctx.Done():
		return l.overError()
	case <-ctx.Done():
	}
	inner, cancel := context.WithTimeout(context.Background(), driverkit.CancelDelay)
	defer cancel()
	_ = l.conn.PgConn().CancelRequest(inner) // the end of the link cancels the wait, too, but nobody waits for that
	select {
	case err := <-c.done:
		if err == nil { // the lock was ours by then
			_, _ = l.do(inner, &linkCall{run: func(ctx context.Context) error { return l.free(ctx, h) }})
		}
	case <-l.ctx.Done():
	case <-inner.Done():
	}
	l.s.forget(h)
	l.cancel(context.Cause(ctx))
	return context.Cause(ctx)
}

// free releases the lock of h, if the session has it. An error that the server answers leaves
// the lock to the session, so free tries again. Any error that it returns ends the session: it
// is better to lose all locks, and to tell their holders, than to keep one that nobody holds.
func (l *link) free(ctx context.Context, h *sessionLease) (err error) {
	s := l.s
	s.mu.Lock()
	have := l.held[h.key] == h
	s.mu.Unlock()
	for try := 1; have; try++ {
		var was bool
		err = l.conn.QueryRow(ctx, l.s.sql.free, h.key, h.req.Shared).Scan(&was)
		if err == nil && !was {
			err = errUnlocked
		}
		if err == nil {
			break
		}
		if try == 3 || !errors.As(err, new(*pgconn.PgError)) || l.conn.IsClosed() {
			return untrustedError{err}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have {
		delete(l.held, h.key)
		h.state = holdFreed
		s.giveBackLocked(l)
	}
	return nil
}
