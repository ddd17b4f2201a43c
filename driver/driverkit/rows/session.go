package rows

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A Conn is the connection of a session. One goroutine at a time uses it. The context of a call
// ends when the session may have ended. An error that matches [driverkit.UnknownOutcomeError] ends
// the session.
type Conn interface {
	// Key returns the key by which other sessions see that this one lives.
	Key() string

	// Ping checks that the connection still leads to the same session.
	Ping(ctx context.Context) error

	// Lock tries to take the lock of a lease.
	Lock(ctx context.Context, l *Lease) (got bool, err error)

	// Unlock releases the lock of a lease. Any error ends the session.
	Unlock(ctx context.Context, l *Lease) error

	// Idle waits until ctx is done, and handles notifications meanwhile. It returns an error if
	// it finds that the session has ended.
	Idle(ctx context.Context) error

	// IsBroken reports whether the connection can't be used after a call with this context and
	// this error.
	IsBroken(ctx context.Context, err error) bool

	// Close closes the connection, which may be dead already.
	Close()
}

// A session manages the connection that has the locks, and the leases that depend on it.
type session struct {
	d           *Driver
	connectLock chan struct{} // capacity 1: serializes connecting

	mu   sync.Mutex
	link *link             // nil if there is no connection
	held map[string]*Lease // the leases whose locks the session has, by nonce

	// retryPace spaces out the tries for locks that foreign clients hold.
	retryPace driverkit.RateLimit
}

// key returns the key of the session. It opens a session if there is none.
func (s *session) key(ctx context.Context) (string, error) {
	l, err := s.getLink(ctx)
	if err != nil {
		return "", err
	}
	return l.conn.Key(), nil
}

// getLink returns the session's connection. It connects if there is none.
func (s *session) getLink(ctx context.Context) (*link, error) {
	if l := s.current(); l != nil {
		return l, nil
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	select {
	case s.connectLock <- struct{}{}:
		defer func() { <-s.connectLock }()
	case <-inner.Done():
		return nil, context.Cause(inner)
	}
	if l := s.current(); l != nil {
		return l, nil
	}
	conn, err := s.d.backend.Connect(inner)
	if err != nil {
		return nil, err
	}
	l := &link{SessionConn: driverkit.NewSessionConn(s.d.opts.SessionTimeout), conn: conn, next: make(chan struct{}, 1)}
	l.linger = func() bool { return s.d.backend.Listen != nil || !s.d.registry.hasWaiting() } // who waits gets notifications
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.d.Life.Go(func() { s.onLinkEnd(l, l.serve()) }) {
		conn.Close()
		return nil, driver.ErrClosed
	}
	s.link = l
	s.setConnected(true)
	return l, nil
}

// current returns the session's connection, or nil.
func (s *session) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// setConnected records whether notifications arrive, if they arrive on the session's connection.
func (s *session) setConnected(connected bool) {
	if s.d.backend.Listen == nil {
		s.d.registry.setConnected(connected)
	}
}

// onLinkEnd ends the leases of a connection that has ended.
func (s *session) onLinkEnd(l *link, cause error) {
	if s.d.Life.Over() {
		cause = driver.ErrClosed
	}
	l.End(cause)
	l.conn.Close()
	lost := s.d.LeasesOf() // before others can open the next session
	s.mu.Lock()
	s.link = nil
	clear(s.held)
	s.mu.Unlock()
	s.setConnected(false)
	for _, le := range lost {
		if le.lose(fmt.Errorf("%w: its session is over: %w", driver.ErrLost, cause)) {
			s.d.registry.removeLease(le)
		}
	}
}

// A sessionEndedError means that the row granted a lease, and the session then failed before it
// had the lock.
type sessionEndedError struct{ error }

func (e sessionEndedError) Unwrap() error { return e.error }

// secure takes the session's lock for a lease that the row has granted. The lock can still be held
// by a foreign client, or by a former holder that has not yet learned that its lease was broken.
// Neither notifies anybody when it is done, so secure polls, with at least one poll interval
// between two tries of this driver.
func (a *Attempt) secure(ctx context.Context, le *Lease) error {
	s := a.d.session
	if s == nil {
		le.markGranted()
		return nil
	}
	for first := true; ; first = false {
		start, got, err := s.lock(ctx, a.Entry.Session, le)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			return sessionEndedError{err}
		case got && first: // the lease counts from the writing of its row, as MinHold does
			return nil
		case got:
			le.grant.Start = start
			return nil
		case a.Req.NoWait:
			return driver.ErrHeld
		}
		if err := s.retryPace.Wait(ctx, a.d.opts.PollInterval); err != nil {
			return err
		}
	}
}

// lock tries to take the lock of a lease in the session with the given key. The server would grant
// a session a lock that it already has, so lock first checks whether the session has it for
// another name with the same LockKey.
func (s *session) lock(ctx context.Context, key string, le *Lease) (driver.Instant, bool, error) {
	l, err := s.getLink(ctx)
	if err != nil {
		return driver.Instant{}, false, err
	}
	if l.conn.Key() != key {
		return driver.Instant{}, false, fmt.Errorf("%w: its session ended as it was granted", driver.ErrLost)
	}
	s.mu.Lock()
	le.lockKey, le.lockRequested = s.d.backend.LockKey(le.Req.Name), true
	s.mu.Unlock()
	got := false // owned by the call until it is answered: the call goes on without us
	start, err := l.do(ctx, func(ctx context.Context) (err error) {
		s.mu.Lock()
		dropped, reacquired, taken := le.dropped, s.held[le.Nonce] != nil, s.isTaken(le)
		s.mu.Unlock()
		switch {
		case dropped, taken && !reacquired: // if it was dropped, its attempt was given up
			return errNotSent
		case reacquired: // its owner acquires again
			err = l.conn.Ping(ctx)
			got = err == nil
		default:
			got, err = l.conn.Lock(ctx, le)
		}
		if err != nil || !got {
			return err
		}
		s.mu.Lock() // on the link's goroutine: neither its end nor unlock can intervene
		defer s.mu.Unlock()
		if !reacquired {
			s.held[le.Nonce] = le
		}
		le.markGranted()
		return nil
	})
	return start, err == nil && got, err
}

// isTaken reports whether the session has the lock with the key of le for another lease that
// excludes le. The caller must hold s.mu.
func (s *session) isTaken(le *Lease) bool {
	for _, other := range s.held {
		if other.lockKey == le.lockKey && !(other.sharesLock() && le.sharesLock()) {
			return true
		}
	}
	return false
}

// sharesLock reports whether a lease takes the read side of the session's lock.
func (l *Lease) sharesLock() bool { return l.Req.Shared || l.Req.Slots > 0 }

// unlock releases the lock of a lease if the session has it or is about to get it. For a lease
// that was never granted, it leaves the lock that the owner has through an earlier lease. If it is
// not certain that the server released the lock, unlock ends the connection with all its locks: it
// is better to lose them, and to tell their holders, than to keep a lock taken that nobody holds.
//
// The error matches driver.ErrLost if the session had ended, and driver.ErrUnavailable if the
// server has not answered in time.
func (s *session) unlock(ctx context.Context, le *Lease, granted bool) error {
	isOurs := func() bool { // requires s.mu
		have := s.held[le.Nonce]
		return have == le || have != nil && granted
	}
	s.mu.Lock()
	l := s.link
	le.dropped = true
	if !isOurs() && !le.lockRequested {
		l = nil
	}
	s.mu.Unlock()
	if l == nil {
		return driver.ErrLost
	}
	ctx, cancel := context.WithTimeoutCause(ctx, driverkit.CleanupTimeout, errNoAnswer)
	defer cancel()
	_, err := l.do(ctx, func(ctx context.Context) error { // a failure ends the connection
		s.mu.Lock()
		found := isOurs()
		if found {
			delete(s.held, le.Nonce)
		}
		s.mu.Unlock()
		if !found {
			return errNotSent
		}
		if err := l.conn.Unlock(ctx, le); err != nil {
			return driverkit.UnknownOutcomeError{Err: err}
		}
		s.d.registry.removeLease(le) // it may have been granted since the caller gave up
		s.mu.Lock()
		le.unlocked = true
		s.mu.Unlock()
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && !le.unlocked:
		return driver.ErrLost
	case err != nil && !errors.Is(err, driver.ErrLost):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

// Ping checks that the session lives, and returns the time from which that is known.
func (d *Driver) Ping(ctx context.Context) (driver.Instant, error) {
	l := d.session.current()
	if l == nil {
		return driver.Instant{}, fmt.Errorf("%w: its session is over", driver.ErrLost)
	}
	return l.do(ctx, l.conn.Ping)
}

// YieldIfFull returns err. If the server has no connection left, it first ends a session that
// nobody uses: processes that have one connection each and need two would otherwise wait for one
// another.
func (d *Driver) YieldIfFull(err error) error {
	if d.session == nil || !errors.Is(err, driver.ErrFull) {
		return err
	}
	d.registry.mu.Lock()
	idle := len(d.registry.waiting)+len(d.registry.leases) == 0
	d.registry.mu.Unlock()
	if l := d.session.current(); idle && l != nil {
		l.End(err)
	}
	return err
}

// close releases what the session holds, and ends it.
func (s *session) close() {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), driverkit.CleanupTimeout, errNoAnswer)
	defer cancel()
	for _, le := range held {
		_ = le.Release(ctx) // so that waiters are notified; otherwise they find out later
	}
	if l := s.current(); l != nil {
		l.End(driver.ErrClosed)
	}
}

// A link makes the calls of a session. One goroutine owns its connection and makes the calls of
// all others. Between the calls it idles, and pings when the connection has been silent for long.
type link struct {
	*driverkit.SessionConn

	conn Conn

	next   chan struct{} // capacity 1: another call has come
	linger func() bool   // whether to wait for the next call before the link idles
	called bool          // the last step made a call; only the link's goroutine uses it

	mu       sync.Mutex
	calls    []*driverkit.Call
	stopIdle context.CancelFunc
}

// lingerTime is how long a link waits for the next call before it idles: to interrupt an idle
// connection takes longer than most calls.
const lingerTime = time.Millisecond

// errNotSent is the result of a call that turned out to be unnecessary. Such a call says nothing
// about the connection.
var errNotSent = errors.New("nothing was sent to the server")

// do runs fn on the connection, with a context that ends when the session may have ended. It
// returns a time before the first statement of fn was sent. If fn returns errNotSent, do succeeds.
func (l *link) do(ctx context.Context, fn func(context.Context) error) (driver.Instant, error) {
	c := driverkit.NewCall(ctx, fn)
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
	sent, err := l.Wait(ctx, c)
	if errors.Is(err, errNotSent) {
		err = nil
	}
	return sent, err
}

// run makes a call. It returns an error if the connection can't be used any more.
func (l *link) run(c *driverkit.Call) error {
	return l.Run(c, func(ctx context.Context, err error) bool {
		return !errors.Is(err, errNotSent) && l.conn.IsBroken(ctx, err)
	})
}

// serve owns the connection until it ends, and returns the reason.
func (l *link) serve() (err error) {
	for err == nil {
		err = l.step()
	}
	return err
}

// awaitCall waits for the next call for a moment.
func (l *link) awaitCall() error {
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case <-l.next:
	case <-timer.C:
	case <-l.Context().Done():
		return context.Cause(l.Context())
	}
	return nil
}

// step makes the next call. If there is none, it idles, or pings when that is due.
func (l *link) step() error {
	l.mu.Lock()
	if len(l.calls) > 0 {
		c := l.calls[0]
		l.calls = l.calls[1:]
		l.mu.Unlock()
		l.called = true
		return l.run(c)
	}
	if l.called && l.linger() {
		l.called = false
		l.mu.Unlock()
		return l.awaitCall()
	}
	ctx, cancel := context.WithDeadline(l.Context(), l.Due())
	defer cancel()
	l.stopIdle = cancel
	l.mu.Unlock()
	err := l.conn.Idle(ctx)
	switch {
	case l.Context().Err() != nil:
		return context.Cause(l.Context())
	case err == nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return l.run(driverkit.NewCall(l.Context(), l.conn.Ping))
	}
	return err
}
