package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// NewSession returns a driver whose locks are the server's own, taken with GET_LOCK. All of them
// belong to one session, on one connection that is taken out of db for as long as the driver is
// open, and end with that session: at once when the process dies, and after [Timeout] when it is
// stopped or cut off. Other programs that use the same names with GET_LOCK are excluded as well,
// see [Keys]. There are only exclusive locks.
//
// As with [New], a table holds the queue and the tokens; it is called snib_sessions. The driver
// writes it through other connections of db, which stays the caller's, and must be allowed to
// open at least two.
//
// Each acquisition refuses a pooler that shares connections with a [driver.ErrInvalid]. All
// clients must use the same server, because GET_LOCK excludes only on one server. The driver does
// not detect that different clients use different servers, as in a Galera cluster behind a load
// balancer.
//
// NewSession does not contact the server. An option that is invalid, or a db that may open one
// connection only, is a [driver.ErrInvalid].
func NewSession(db *sql.DB, opts ...Option) (*Driver, error) {
	c, err := newConfig(db, "snib_sessions", opts)
	if db != nil && db.Stats().MaxOpenConnections == 1 {
		err = errors.Join(err, fmt.Errorf("%w db: it may open one connection only, and a session needs one to itself", driver.ErrInvalid))
	}
	if err != nil {
		return nil, err
	}
	d := newDriver(db, c)
	d.session = &session{d: d, connectLock: make(semaphore, 1), held: map[string]*lease{}}
	return d, nil
}

// A session manages the connection that holds the locks, and the leases that depend on it.
type session struct {
	d           *Driver
	connectLock semaphore // of one: serializes connecting

	mu   sync.Mutex
	link *link // nil if there is no connection
	held map[string]*lease

	ended endedSet // sessions of other drivers that have ended
	// Spaces out the tries for locks that foreign clients hold.
	retryPace driverkit.RateLimit
}

func (s *session) describe(info *driver.Info) {
	info.Tenure = driver.TenureSession
	info.Shared, info.Slots = false, false
	info.MinTTL = 0
	info.Assumptions = append([]string{
		"all clients speak to the same server: GET_LOCK is not replicated",
		"the end of a connection on the server reaches the client within 90 ms, and the Go driver can tell it (checkConnLiveness, on Unix)",
	}, info.Assumptions[1:]...)
}

// key returns the key of the session, by which others see that it lives. It opens a session if
// there is none.
func (s *session) key(ctx context.Context) (string, error) {
	l, err := s.getLink(ctx)
	if err != nil {
		return "", err
	}
	return l.key, nil
}

// getLink returns the session's connection. It connects if there is none.
func (s *session) getLink(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, driverkit.CallTimeout, errNoAnswer)
	defer cancel()
	leave, err := s.connectLock.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l, err = s.d.connect(ctx)
	if err != nil {
		return nil, s.d.explain(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.d.life.Go(func() { s.onLinkEnd(l, l.serve()) }) {
		hangUp(l.conn)
		return nil, driver.ErrClosed
	}
	s.link = l
	return l, nil
}

// onLinkEnd ends the leases of a connection that has ended.
func (s *session) onLinkEnd(l *link, cause error) {
	hangUp(l.conn)
	s.mu.Lock()
	s.link = nil
	lost := slices.Collect(maps.Values(s.held))
	clear(s.held)
	s.mu.Unlock()
	for _, le := range lost {
		le.lose(fmt.Errorf("%w: its session is over: %w", driver.ErrLost, cause))
		s.d.registry.removeLease(le)
	}
}

// A sessionEndedError means that the row granted a lease, and the session then failed before it
// had the lock.
type sessionEndedError struct{ error }

func (e sessionEndedError) Unwrap() error { return e.error }

// secure takes the server's lock of a lease that the row has granted. Only a foreign client can
// still hold it, or a former holder that has not yet learned that its lease was broken. Neither
// notifies anybody when it is done, so secure tries again and again, with at least pollInterval
// between two tries of this driver.
func (a *attempt) secure(ctx context.Context, le *lease) error {
	s := a.d.session
	if s == nil {
		return nil
	}
	for first := true; ; first = false {
		start, got, err := s.lock(ctx, a.entry.Session, le)
		switch {
		case err != nil && ctx.Err() != nil, errors.Is(err, driver.ErrUnavailable):
			return err
		case err != nil:
			return sessionEndedError{err}
		// The lease counts from the writing of its row, as MinHold does.
		case got && first:
			return nil
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

// lock tries GET_LOCK in the session with the given key. The server would grant a session a lock
// that it already has, so reserve checks for names with the same key.
func (s *session) lock(ctx context.Context, key string, le *lease) (driver.Instant, bool, error) {
	l, err := s.getLink(ctx)
	if err != nil {
		return driver.Instant{}, false, err
	}
	if l.key != key {
		return driver.Instant{}, false, fmt.Errorf("%w: its session ended as it was granted", driver.ErrLost)
	}
	got := false // owned by the call until it is answered: the call goes on without us
	start, err := l.do(ctx, func(ctx context.Context) error {
		reacquired, free := s.reserve(le)
		if !free {
			return nil
		}
		if got = reacquired; reacquired { // its owner acquires again
			return l.ping(ctx)
		}
		if err := l.getLock(ctx, le.key(), &got); err != nil || !got {
			s.unreserve(le)
			return err
		}
		if s.removeIfDropped(le) { // nobody waits for the lock any more
			return l.releaseLock(ctx, le.key())
		}
		return nil
	})
	return start, err == nil && got, err
}

// reserve records that a lease is about to have its lock. free is false if another lease has the
// same lock, and reacquired is true if this lease has it already.
func (s *session) reserve(le *lease) (reacquired, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, reacquired = s.held[le.nonce]; reacquired {
		s.held[le.nonce] = le
		return true, true
	}
	for _, other := range s.held {
		if other.key() == le.key() {
			return false, false
		}
	}
	s.held[le.nonce] = le
	return false, true
}

func (s *session) unreserve(le *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[le.nonce] == le {
		delete(s.held, le.nonce)
	}
}

// removeIfDropped reports whether a lease was dropped while its lock was requested, and then
// removes it from the session.
func (s *session) removeIfDropped(le *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if le.dropped {
		delete(s.held, le.nonce)
	}
	return le.dropped
}

// unlock releases the lock of a lease if the session has it. If the answer leaves any doubt,
// unlock ends the connection with all its locks: it is better that they are lost, and their
// holders told, than that nobody holds them. unlock fails if ctx is done before the server has
// answered.
func (s *session) unlock(ctx context.Context, le *lease) error {
	s.mu.Lock()
	le.dropped = true
	l := s.link
	_, held := s.held[le.nonce]
	s.mu.Unlock()
	if l == nil || !held {
		return nil
	}
	_, err := l.do(ctx, func(ctx context.Context) error { // a failure ends the connection
		s.mu.Lock()
		_, held := s.held[le.nonce]
		delete(s.held, le.nonce)
		s.mu.Unlock()
		if !held {
			return nil
		}
		return l.releaseLock(ctx, le.key())
	})
	if ctx.Err() != nil && l.Context().Err() == nil {
		return err
	}
	return nil // the lock is released, or has ended with the connection
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

// confirm answers renewals: a lease is still held if the session has its lock and its row has its
// entry.
func (s *session) confirm(ctx context.Context, all []renewal) error {
	start, err := s.ping(ctx)
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	lost := err != nil
	found, err := s.d.read(ctx, namesOf(all))
	if err != nil && !lost {
		return err
	}
	for _, r := range all {
		if lost || !s.hasLock(r.lease) {
			r.setAnswer(false, start)
			continue
		}
		r.setAnswerFrom(found[r.req.Name], start)
	}
	return nil
}

// hasLocks reports whether the session holds any locks.
func (s *session) hasLocks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) > 0
}

// hasLock reports whether the session holds the lock of a lease.
func (s *session) hasLock(le *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[le.nonce]
	return held
}

// checkRows ends the leases that were removed from their rows by others.
func (s *session) checkRows(ctx context.Context) {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	s.mu.Unlock()
	var names []string
	for _, le := range held {
		names = append(names, le.req.Name)
	}
	slices.Sort(names)
	found, err := s.d.read(ctx, slices.Compact(names))
	if err != nil || len(names) == 0 {
		return
	}
	for _, le := range held {
		if row := found[le.req.Name]; row == nil || row.malformed == nil && row.holderByToken(le.grant.Token) == nil {
			le.lose(fmt.Errorf("%w: it was broken", driver.ErrLost))
			le.dropInBackground()
		}
	}
}

// close releases what the session holds, and ends it.
func (s *session) close() {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	l := s.link
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), driverkit.CleanupTimeout, errNoAnswer)
	defer cancel()
	for _, le := range held {
		_ = le.Release(ctx) // so that waiters are signaled; otherwise they find out later
	}
	if l != nil {
		l.End(driver.ErrClosed)
	}
}

// sameSession reports whether the entries h and by belong to the same session. Entries of rows
// have no session, so it is always true for them.
func (d *Driver) sameSession(h, by *entry) bool { return h.Session == by.Session }

// takeoverDelay is how long another process waits before it takes a lock whose session has ended.
// In that time the end of the connection reaches the former holder, which is told first.
const takeoverDelay = 10 * closeCheckInterval

// reapSessions removes the holders whose session has ended from states.
func (d *Driver) reapSessions(ctx context.Context, states map[string]*state) error {
	if d.session == nil {
		return nil
	}
	ended, newlyEnded := map[string]bool{}, false
	for _, s := range states {
		for _, h := range s.holders {
			if _, known := ended[h.Session]; known || h.Kept || h.Session == "" {
				continue
			}
			if ended[h.Session] = d.session.ended.has(h.Session); ended[h.Session] {
				continue
			}
			var free sql.NullBool
			err := d.query(ctx, `SELECT IS_FREE_LOCK(?)`, []any{h.Session}, func(rows *sql.Rows) error { return rows.Scan(&free) })
			if err != nil {
				return err
			}
			ended[h.Session] = free.Valid && free.Bool
			newlyEnded = newlyEnded || ended[h.Session]
		}
	}
	if newlyEnded {
		select {
		case <-time.After(takeoverDelay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for key, over := range ended {
		if over {
			d.session.ended.add(key)
		}
	}
	for _, s := range states {
		s.holders = slices.DeleteFunc(s.holders, func(h entry) bool { return !h.Kept && ended[h.Session] })
	}
	return nil
}

// An endedSet is a cache of sessions that have ended. It is emptied when it has 1000 entries. It
// is safe for concurrent use.
type endedSet struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (e *endedSet) has(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.keys[key]
}

func (e *endedSet) add(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys == nil || len(e.keys) >= 1000 {
		e.keys = map[string]bool{}
	}
	e.keys[key] = true
}

func (l *lease) key() string { return l.d.conf.key(l.req.Name) }
