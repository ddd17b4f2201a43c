package pglock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// NewSession returns a driver whose locks are PostgreSQL's own advisory locks. All of them belong
// to one session, on one connection beside the pool, and end with that session: at once when the
// process dies, and after [Timeout] when it is stopped or cut off. Other programs that use the
// same advisory locks are excluded as well, see [Keys].
//
// As with [New], a table holds the queue and the tokens; it is called snib_sessions. The driver
// writes it through the pool, which stays the caller's.
//
// Each acquisition refuses a pooler before the server with a [driver.ErrInvalid], unless the
// option [Listen] says how to connect past it, or [SessionPooler] that it does no harm. NewSession
// itself does not contact the server. An option that is invalid is a [driver.ErrInvalid].
func NewSession(pool *pgxpool.Pool, opts ...Option) (*Driver, error) {
	c, err := newConfig(pool, "snib_sessions", opts)
	if err != nil {
		return nil, err
	}
	d := newDriver(pool, c, liveSession)
	d.session = &session{d: d, connectLock: make(chan struct{}, 1), held: map[string]*lease{}}
	return d, nil
}

// A session manages the connection that holds the advisory locks, and the leases that depend on
// it.
type session struct {
	d           *Driver
	connectLock chan struct{} // of one: serializes connecting

	mu   sync.Mutex
	link *link // nil if there is no connection
	held map[string]*lease

	// Spaces out the tries for advisory locks that foreign clients hold.
	retryPace driverkit.RateLimit
}

func (s *session) describe(info *driver.Info) {
	info.Tenure = driver.TenureSession
	info.MinTTL = 0
	info.Assumptions = append([]string{
		"the connection leads to the server itself and not to a pooler in transaction mode",
		"the server is PostgreSQL 14 or later; before, it is told by TCP only that a host has vanished",
	}, info.Assumptions[1:]...)
}

// key returns the key of the session. It opens a session if there is none.
func (s *session) key(ctx context.Context) (int32, error) {
	l, err := s.getLink(ctx)
	if err != nil {
		return 0, err
	}
	return l.key, nil
}

// getLink returns the session's connection. It connects if there is none.
func (s *session) getLink(ctx context.Context) (*link, error) {
	select {
	case s.connectLock <- struct{}{}:
		defer func() { <-s.connectLock }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	l, err := s.d.connect(inner)
	if err != nil {
		if inner.Err() != nil {
			return nil, context.Cause(inner)
		}
		return nil, s.d.explain(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.d.life.Go(func() { s.onLinkEnd(l, l.serve()) }) {
		hangUp(l.conn)
		return nil, driver.ErrClosed
	}
	s.link = l
	s.d.registry.setConnected(true)
	return l, nil
}

// onLinkEnd ends the leases of a connection that has ended.
func (s *session) onLinkEnd(l *link, cause error) {
	hangUp(l.conn)
	s.mu.Lock()
	s.link = nil
	clear(s.held)
	s.mu.Unlock()
	s.d.registry.setConnected(false)
	for _, le := range s.d.registry.leasesOf() {
		if le.lose(fmt.Errorf("%w: its session is over: %w", driver.ErrLost, cause)) {
			s.d.registry.removeLease(le)
		}
	}
}

// A sessionEndedError means that the row granted a lease, and the session then failed before it
// had the advisory lock.
type sessionEndedError struct{ error }

func (e sessionEndedError) Unwrap() error { return e.error }

// secure takes the advisory lock of a lease that the row has granted. Only a foreign client can
// still hold it, or a former holder that has not yet learned that its lease was broken. Neither
// notifies anybody when it is done, so secure tries again and again, with at least pollInterval
// between two tries of this driver.
func (a *attempt) secure(ctx context.Context, le *lease) error {
	s := a.d.session
	if s == nil {
		le.markGranted()
		return nil
	}
	for {
		start, got, err := s.lock(ctx, a.entry.Session, le)
		switch {
		case err != nil:
			return sessionEndedError{err}
		case got:
			le.grant.Start = start
			return nil
		case a.req.NoWait:
			return driver.ErrHeld
		}
		if err := s.retryPace.Wait(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// lock tries the advisory lock in the session with the given key.
func (s *session) lock(ctx context.Context, key int32, le *lease) (driver.Instant, bool, error) {
	l, err := s.getLink(ctx)
	if err != nil {
		return driver.Instant{}, false, err
	}
	if l.key != key {
		return driver.Instant{}, false, fmt.Errorf("%w: its session ended as it was granted", driver.ErrLost)
	}
	s.mu.Lock()
	_, reacquired := s.held[le.nonce]
	le.lockRequested = true
	s.mu.Unlock()
	call := le.key().call("pg_try_advisory_lock", le.req.Shared || le.req.Slots > 0)
	got := false // owned by the call until it is answered: the call goes on without us
	start, err := l.do(ctx, func(ctx context.Context) error {
		switch {
		case s.isDropped(le):
			return driver.ErrLost // nobody waits for the lock any more
		case reacquired: // its owner acquires again
			if err := l.ping(ctx); err != nil {
				return err
			}
			got = true
			le.markGranted()
			return nil
		}
		if err := l.conn.QueryRow(ctx, `SELECT `+call.sql, call.args...).Scan(&got); err != nil || !got {
			return err
		}
		s.mu.Lock() // on the link's goroutine: neither its end nor unlock can intervene
		defer s.mu.Unlock()
		s.held[le.nonce] = le
		le.markGranted()
		return nil
	})
	return start, err == nil && got, err
}

func (s *session) isDropped(le *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return le.dropped
}

// unlock releases the advisory lock of a lease if the session has it or is about to get it. A
// lease that was never granted does not release the lock that its owner has through an earlier
// lease. If the answer leaves any doubt, unlock ends the connection with all its locks: it is
// better that they are lost, and their holders told, than that nobody holds them.
func (s *session) unlock(ctx context.Context, le *lease, granted bool) {
	isOurs := func() bool { // requires s.mu
		have := s.held[le.nonce]
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
		return
	}
	ctx, cancel := context.WithTimeout(ctx, driverkit.CleanupTimeout)
	defer cancel()
	_, _ = l.do(ctx, func(ctx context.Context) error { // a failure ends the connection
		s.mu.Lock()
		found := isOurs()
		if found {
			delete(s.held, le.nonce)
		}
		s.mu.Unlock()
		if !found {
			return nil
		}
		return l.unlock(ctx, le)
	})
}

// unlock releases the advisory lock of a lease, which the session must have.
func (l *link) unlock(ctx context.Context, le *lease) error {
	call := le.key().call("pg_advisory_unlock", le.req.Shared || le.req.Slots > 0)
	var was bool
	err := l.conn.QueryRow(ctx, `SELECT `+call.sql, call.args...).Scan(&was)
	if err == nil && !was {
		err = errors.New("an advisory lock that we held was not ours any more")
	}
	if err != nil {
		return driverkit.UnknownOutcomeError{Err: err}
	}
	return nil
}

// ping checks that the session lives, and returns the time from which that is known.
func (s *session) ping(ctx context.Context) (driver.Instant, error) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return driver.Instant{}, fmt.Errorf("%w: its session is over", driver.ErrLost)
	}
	return l.do(ctx, l.ping)
}

// close releases what the session holds, and ends it.
func (s *session) close() {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	l := s.link
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), driverkit.CleanupTimeout)
	defer cancel()
	for _, le := range held {
		_ = le.Release(ctx) // so that waiters are notified; otherwise they find out later
	}
	if l != nil {
		l.End(driver.ErrClosed)
	}
}

func (l *lease) key() Key { return l.d.conf.key(l.req.Name) }
