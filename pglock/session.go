package pglock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

const (
	// maxConnections is how many connections a [Session] has at most beside its first one. Each
	// request that waits needs one for itself.
	maxConnections = 32

	// idleTimeout is how long such a connection is kept when nobody needs it.
	idleTimeout = 5 * time.Second
)

// A Session is a driver whose locks are PostgreSQL's own advisory locks, see [NewSession]. It is
// safe for concurrent use.
type Session struct {
	pool    *pgxpool.Pool // the user's, who closes it
	conf    config
	sql     sessionStatements
	life    *driverkit.Lifecycle
	opening chan struct{} // capacity 1: serializes the opening of the first connection

	mu        sync.Mutex
	main      *link // takes all locks that are free; nil if it is not connected
	links     map[*link]bool
	beside    int     // how many links there are beside main, and how many are being opened
	idle      []*link // those beside main that have no lock
	lastToken uint64
}

var _ driver.Driver = (*Session)(nil)

// NewSession returns a driver whose locks are PostgreSQL's own advisory locks, exclusive or
// shared. A lock belongs to a session of the server, on a connection beside the pool, and ends
// with it: at once when the process dies, and after [Timeout] when it is stopped or cut off.
// Other programs that use the same advisory locks are excluded as well, see [Keys].
//
// There is no table. A token is the server's clock, so take rows ([New]) if tokens must outlive the
// loss of the server, if people must see holders and labels, list all locks or break one, or if you
// need semaphores.
//
// A request that finds its lock taken waits in the server's own queue, which blocks a
// connection: a process has one for all locks that it got without a wait, and one more for each
// request that waits and for each lock that was waited for, up to 32. Further requests that have
// to wait get an error that matches [driver.ErrFull], with which the core tries again.
//
// Each acquisition refuses a pooler before the server with a [driver.ErrInvalid], unless the
// option [Listen] says how to connect past it. A server that takes no writes is
// [driver.ErrUnavailable]: all holds end when their server becomes one. NewSession itself does
// not contact the server. An option that is invalid, or that only [New] uses, is a
// [driver.ErrInvalid].
func NewSession(pool *pgxpool.Pool, opts ...Option) (*Session, error) {
	c, err := newConfig(pool, opts)
	if err == nil && c.rowOption != "" {
		err = driver.Invalidf("option %s: only New uses it", c.rowOption)
	}
	if err != nil {
		return nil, err
	}
	return &Session{
		pool: pool, conf: c, sql: newSessionStatements(), life: driverkit.NewLifecycle(), opening: make(chan struct{}, 1),
		links: map[*link]bool{},
	}, nil
}

// Info implements [driver.Driver].
func (s *Session) Info() driver.Info {
	return driver.Info{
		Backend:  "postgres",
		Tenure:   driver.TenureSession,
		Fencing:  driver.FencingClock,
		Fairness: driver.FairAlways,
		Shared:   true,
		Assumptions: []string{
			"the connection leads to the server itself and not to a pooler in transaction mode",
			"the server is PostgreSQL 14 or later; before, it is told by TCP only that a host has vanished",
			"the server's clock is not set back: it is the token",
			"a primary that is replaced refuses writes, or its connections are cut, before another server takes its place",
		},
	}
}

// sessionPrefix begins the application name of the sessions of this package.
const sessionPrefix = "snib "

// sessionName returns the name under which pg_stat_activity shows a session whose user has named
// it.
func sessionName(user string) string {
	host, _ := os.Hostname()
	return strings.TrimSpace(fmt.Sprintf("%s%.30s:%d %s", sessionPrefix, host, os.Getpid(), user))
}

// Acquire implements [driver.Driver].
func (s *Session) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := s.life.Ready(ctx); err != nil {
		return nil, err
	}
	switch {
	case req.Detached:
		return nil, driver.Invalidf("request: a lock in a session can't outlive it; take a row instead")
	case req.Slots > 0:
		return nil, driver.Invalidf("request: advisory locks have no semaphores; take a row instead")
	}
	if err := req.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := s.life.During(ctx)
	defer cancel()
	l, err := s.acquire(ctx, req)
	if l == nil {
		return nil, err
	}
	if ctx.Err() != nil {
		_ = l.release(ctx, 0)
		return nil, context.Cause(ctx)
	}
	s.markGranted(l)
	return l, nil
}

// acquire makes attempts until the lock is ours. It retries for as long as the server is
// unavailable to a request that it has answered before. The core retries the others.
func (s *Session) acquire(ctx context.Context, req driver.Request) (*sessionLease, error) {
	var outage driverkit.Outage
	for served := false; ; {
		sentAt := time.Now()
		l, answered, err := s.attempt(ctx, req)
		if answered {
			outage, sentAt = driverkit.Outage{}, time.Now()
		}
		served = served || answered || errors.Is(err, driver.ErrFull)
		switch unavailable := errors.Is(err, driver.ErrUnavailable); {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, driverkit.EndOfWait(context.Cause(ctx), err)
		case !unavailable || req.NoWait || !served:
			return nil, err
		}
		pause, again := outage.AgainWithin(req.RetryLimit(), sentAt, err)
		if !again {
			return nil, err
		}
		req.NoteWait(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, driverkit.EndOfWait(context.Cause(ctx), err)
		}
	}
}

// attempt takes the lock if it is free, and else waits in the server's queue. answered reports
// that the server has said that the lock is held.
func (s *Session) attempt(ctx context.Context, req driver.Request) (_ *sessionLease, answered bool, err error) {
	h := &sessionLease{s: s, key: s.conf.key(req.Name), req: req}
	got, err := s.takeOnMain(ctx, h)
	if err == nil && !got && req.Shared && s.sharesKey(h) {
		got, err = s.takeBeside(ctx, h) // the session would get it again, and pass writers that wait
	}
	if err != nil {
		return nil, false, err
	}
	if got {
		return h, false, nil
	}
	if req.NoWait {
		return nil, true, driver.ErrHeld
	}
	req.NoteWait(nil)
	l, err := s.borrow(ctx)
	if err != nil {
		return nil, true, err
	}
	s.setWaiting(l, h)
	if err = l.wait(ctx, h); err != nil && ctx.Err() == nil {
		err = s.explainCall(err)
	}
	s.setWaiting(l, nil)
	if err != nil {
		s.giveBack(l)
		return nil, true, err
	}
	return h, true, nil
}

// takeOnMain tries to take a lock in the main session. If that turns out to be over, it opens
// another.
func (s *Session) takeOnMain(ctx context.Context, h *sessionLease) (got bool, err error) {
	const tries = 3
	for try := 1; ; try++ {
		l, err := s.connected(ctx)
		if err != nil {
			return false, err
		}
		got, err = l.take(ctx, h)
		if !errors.Is(err, errSessionOver) || try == tries || ctx.Err() != nil {
			return got, s.explainCall(err)
		}
		<-l.ended // its holders know of the end before another session can have their locks
	}
}

// takeBeside tries to take a lock in another session than the main one.
func (s *Session) takeBeside(ctx context.Context, h *sessionLease) (got bool, err error) {
	l, err := s.borrow(ctx)
	if err != nil {
		return false, err
	}
	got, err = l.take(ctx, h)
	if !got {
		s.giveBack(l)
	}
	return got, s.explainCall(err)
}

// explainCall explains the error of a call. What has ended a session is no error of this
// request, and may be that of a context.
func (s *Session) explainCall(err error) error {
	if errors.Is(err, errSessionOver) {
		return fmt.Errorf("%w: %v", driver.ErrUnavailable, err) //nolint:errorlint // see above
	}
	return explain(err)
}

// connected returns the main session. It opens one if there is none.
func (s *Session) connected(ctx context.Context) (*link, error) {
	current := func() *link {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.main
	}
	if l := current(); l != nil {
		return l, nil
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-inner.Done():
		return nil, context.Cause(inner)
	}
	if l := current(); l != nil {
		return l, nil
	}
	l, err := s.open(inner, false)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links[l] { // it may have ended
		s.main = l
	}
	return l, nil
}

// borrow returns a connection without a lock, beside the main one.
func (s *Session) borrow(ctx context.Context) (*link, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		l := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return l, nil
	}
	full := s.beside >= maxConnections
	if !full {
		s.beside++
	}
	s.mu.Unlock()
	if full {
		return nil, fmt.Errorf("%w: %w: %d requests of this process have one each, because they wait or have waited",
			driver.ErrUnavailable, driver.ErrFull, maxConnections)
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	l, err := s.open(inner, true)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.beside--
	}
	return l, err
}

// giveBack gives back a connection that [Session.borrow] has returned, unless it has a lock.
func (s *Session) giveBack(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBackLocked(l)
}

// giveBackLocked is giveBack for callers that hold s.mu.
func (s *Session) giveBackLocked(l *link) {
	if l != s.main && s.links[l] && len(l.held) == 0 && l.waiting == nil && !slices.Contains(s.idle, l) {
		l.idleSince = time.Now()
		s.idle = append(s.idle, l)
	}
}

// retire reports whether a connection has been idle for long. Nobody gets it any more then.
func (s *Session) retire(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.idle, l)
	if i < 0 || time.Since(l.idleSince) < idleTimeout {
		return false
	}
	s.idle = slices.Delete(s.idle, i, i+1)
	return true
}

// setWaiting notes for which lock a connection waits; nil if it does not wait any more.
func (s *Session) setWaiting(l *link, h *sessionLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.waiting = h
}

// sharesKey reports whether the main session has the key of h for readers.
func (s *Session) sharesKey(h *sessionLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.main != nil && s.main.held[h.key] != nil && s.main.held[h.key].req.Shared
}

// Renew implements [driver.Driver]. It asks each session that has one of the leases whether it
// lives, and whether its server takes writes.
func (s *Session) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	if err := s.life.Ready(ctx); err != nil {
		return rows.FailAll(answers, err)
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	bySession := map[*link][]int{}
	for i, one := range due {
		h, ok := one.(*sessionLease)
		switch {
		case !ok:
			answers[i].Err = driverkit.RemoteError()
		case !s.isHeld(h):
			answers[i].Err = driver.ErrLost
		default:
			bySession[h.link] = append(bySession[h.link], i)
		}
	}
	var asking sync.WaitGroup
	for l, mine := range bySession {
		asking.Go(func() {
			start, err := l.do(inner, l.ping())
			for _, i := range mine {
				switch {
				case !s.isHeld(due[i].(*sessionLease)):
					answers[i].Err = driver.ErrLost
				case err != nil:
					answers[i].Err = explain(err)
				default:
					answers[i].Start = start
				}
			}
		})
	}
	asking.Wait()
	return answers
}

// ping returns a call that asks whether all is well.
func (l *link) ping() *linkCall {
	return &linkCall{run: func(ctx context.Context) error { _, err := l.alive(ctx); return err }}
}

// Close implements [driver.Driver]. All holds end with their sessions. The pool stays open.
func (s *Session) Close() error {
	s.life.End(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for l := range s.links {
			l.cancel(driver.ErrClosed)
		}
	})
	return nil
}
