package pglock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

const (
	// maxLinks is how many connections a [Session] has at most: the first one, and one for each
	// request that waits, and for each further reader of a name.
	maxLinks = 33

	// idleTimeout is how long a connection beside the first one is kept at most when nobody needs
	// it.
	idleTimeout = 5 * time.Second
)

// A Session is a driver whose locks are PostgreSQL's own advisory locks, see [NewSession]. It is
// safe for concurrent use.
type Session struct {
	pool    *pgxpool.Pool // the user's, who closes it
	conf    config
	sql     sessionStatements
	life    *driverkit.Lifecycle
	opening chan struct{}  // capacity 1: serializes the opening of connections
	running sync.WaitGroup // links, and requests to cancel waits

	mu        sync.Mutex
	links     []*link // the first one never waits
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
// request that waits, each lock that was waited for, and each further reader of a name, up to 32.
// A further request that needs one has no place in that queue. It tries again, with the error
// [driver.ErrFull] until it gets one.
//
// Each acquisition refuses a server before PostgreSQL 14, and a pooler before the server unless the
// option [Listen] says how to connect past it, with a [driver.ErrInvalid]. A server that takes no
// writes is [driver.ErrUnavailable]: all holds end when their server becomes one. NewSession itself
// does not contact the server. An option that is invalid, or that only [New] uses, is a
// [driver.ErrInvalid].
func NewSession(pool *pgxpool.Pool, opts ...Option) (*Session, error) {
	c, err := newConfig("NewSession", pool, opts)
	if err != nil {
		return nil, err
	}
	return &Session{
		pool: pool, conf: c, sql: newSessionStatements(), life: driverkit.NewLifecycle(), opening: make(chan struct{}, 1),
	}, nil
}

// Info implements [driver.Driver].
func (s *Session) Info() driver.Info {
	return driver.Info{
		Backend: "postgres",
		Tenure:  driver.TenureSession,
		Fencing: driver.FencingClock,
		Fair:    true,
		Shared:  true,
		Assumptions: []string{
			"the connection leads to the server itself and not to a pooler in transaction mode",
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

// Acquire implements [driver.Driver]. It takes the lock if it is free, and else waits in the
// server's queue. It retries for as long as the server is unavailable to a request that it has
// answered before, and at once if a session turns out to be over. The core retries the others.
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
	if !s.life.Begin() { // Close waits for the withdrawal
		return nil, driver.ErrClosed
	}
	defer s.life.Finish()
	var outage driverkit.Outage
	served, over := false, 0
	for ask := askTry; ; {
		sentAt := time.Now()
		h, err := s.take(ctx, req, ask)
		if err == nil && ctx.Err() == nil {
			return h, nil
		}
		if err == nil {
			h.req.MinHold = 0
			_ = h.Release(ctx)
		}
		held := errors.Is(err, driver.ErrHeld)
		served = served || held || errors.Is(err, driver.ErrFull)
		switch {
		case held:
			outage.CountFrom(time.Now()) // the pause stays: the wait itself may need a connection
		case ask == askWait && h != nil && !errors.Is(err, driver.ErrFull): // the server had queued it
			outage, sentAt = driverkit.Outage{}, time.Now()
		}
		ask = askTry
		switch {
		case s.life.Over():
			return nil, driver.ErrClosed
		case ctx.Err() != nil:
			return nil, driverkit.EndOfWait(context.Cause(ctx), err)
		case held && !req.NoWait:
			req.NoteWait(nil)
			ask = askWait
			continue
		case errors.Is(err, errSessionOver) && over < 2:
			over++
			continue
		case !errors.Is(err, driver.ErrUnavailable) || req.NoWait || !served:
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

// take has a session take a lock. If ctx ends before the server has answered, what it answers later
// is undone.
func (s *Session) take(ctx context.Context, req driver.Request, ask string) (*sessionLease, error) {
	h := &sessionLease{s: s, key: s.conf.key(req.Name), req: req}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	c, err := s.request(inner, h, ask)
	if err != nil {
		return nil, err
	}
	if ask == askTry {
		ctx = inner
	}
	if err = c.await(ctx); ctx.Err() != nil && !h.abandon() {
		err = c.err
	}
	if ask == askWait && err != nil {
		if ctx.Err() != nil {
			s.running.Go(h.link.cancelWait)
			moment, cancel := driverkit.Detached(ctx)
			defer cancel()
			_ = c.await(moment)
		}
		s.end(h.link, errNotNeeded)
	}
	return h, explain(err)
}

// request sends a call in a session that can make it. If there is none, request opens one.
func (s *Session) request(ctx context.Context, h *sessionLease, ask string) (*call, error) {
	if c, _ := s.use(h, ask); c != nil {
		return c, nil
	}
	select { // one connection is opened at a time
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c, full := s.use(h, ask); c != nil {
		return c, nil
	} else if full {
		return nil, fmt.Errorf("%w: %w: this process has %d connections, for requests that wait or have waited, "+
			"and for further readers of a name", driver.ErrUnavailable, driver.ErrFull, maxLinks)
	}
	l, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ask == askWait && len(s.links) == 0 {
		_ = l.conn.Conn().Close() // of no use in any case
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, errSessionOver)
	}
	s.links = append(s.links, l)
	s.running.Go(l.run)
	return l.request(ask, h), nil
}

// use sends a call in a session that is open and does not have the key of h: the server would grant
// that again, and let a reader pass the writers that wait. A wait keeps its session busy, so it
// gets one that has no lock, beside the first one. The call is nil if there is no such session;
// full reports that there can't be another.
func (s *Session) use(h *sessionLease, ask string) (c *call, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.links {
		if !l.waits && l.held[h.key] == nil && (ask == askTry || i > 0 && len(l.held) == 0) {
			return l.request(ask, h), false
		}
	}
	return nil, len(s.links) >= maxLinks
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
	calls, pings := make([]*call, len(due)), map[*link]*call{}
	s.mu.Lock()
	for i, one := range due {
		h, ok := one.(*sessionLease)
		switch {
		case !ok:
			answers[i].Err = driverkit.RemoteError()
			continue
		case h.state != leaseHeld:
			answers[i].Err = driver.ErrLost
			continue
		case pings[h.link] == nil:
			pings[h.link] = h.link.send(newCall(askPing, nil))
		}
		calls[i] = pings[h.link]
	}
	s.mu.Unlock()
	for i, c := range calls {
		if c == nil {
			continue
		}
		err := c.await(inner)
		switch {
		case s.stateOf(due[i].(*sessionLease)) != leaseHeld:
			answers[i].Err = driver.ErrLost
		case err != nil:
			answers[i].Err = explain(err)
		default:
			answers[i].Start = c.sent
		}
	}
	return answers
}

// Close implements [driver.Driver]. All holds end with their sessions. The pool stays open.
func (s *Session) Close() error {
	if s.life.End(nil) { // all requests have ended, and left the queues of the server
		s.mu.Lock()
		for len(s.links) > 0 {
			s.endLocked(s.links[0], driver.ErrClosed)
		}
		s.mu.Unlock()
	}
	s.running.Wait()
	return nil
}
