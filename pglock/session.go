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
	"github.com/sniblock/snib/internal/life"
)

// NewSession returns a driver whose locks are PostgreSQL's own advisory locks, all of them of one session, on one
// connection beside the pool. They end with that session: at once when the process dies, and after [Timeout] when it is
// stopped or cut off. Who else uses the same advisory locks is excluded as well, see [Keys].
//
// Who waits, and for whom, stands in a table as with [New], called snib_sessions; there tokens come from, too. It is
// written through the pool, which stays the caller's.
//
// A pooler before the server is refused by each acquisition, as [driver.ErrInvalid], unless the option [Listen] says how
// to connect past it, or [SessionPooler] that it does no harm.
func NewSession(pool *pgxpool.Pool, opts ...Option) *Driver {
	d := open(pool, "snib_sessions", liveSession, opts)
	d.session = &session{d: d, turn: make(chan struct{}, 1), held: map[string]*lease{}}
	return d
}

// A session is the connection that holds the advisory locks, and what hangs on it.
type session struct {
	d    *Driver
	turn chan struct{} // of one: to connect

	mu   sync.Mutex
	link *link // nil without a connection
	held map[string]*lease

	pace life.Pace // of the tries of locks that strangers have
}

func (s *session) describe(info *driver.Info) {
	info.Tenure = driver.TenureSession
	info.MinTTL = 0
	info.Assumptions = append([]string{
		"the connection leads to the server itself and not to a pooler in transaction mode",
		"the server is PostgreSQL 14 or later; before, it is told by TCP only that a host has vanished",
	}, info.Assumptions[1:]...)
	info.Faults = driver.Faults{
		Pause:     "the server keeps the lock while the connection lives; what is written after its end, the resource must refuse by token",
		Crash:     "the lock is free when the server notices: of a process at once, of a host when TCP gives up",
		Failover:  "all locks are free, and holders are told when their connection fails or a ping does; holds can overlap until then",
		Partition: "the server keeps the lock until it notices; the holder is told before",
		ClockJump: "no effect on locks: sessions have no end",
	}
}

// key returns the key of the session, which it begins if there is none.
func (s *session) key(ctx context.Context) (int32, error) {
	l, err := s.get(ctx)
	if err != nil {
		return 0, err
	}
	return l.key, nil
}

// get returns the session's connection.
func (s *session) get(ctx context.Context) (*link, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	inner, cancel := life.Detached(ctx)
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
	if !s.d.life.Go(func() { s.over(l, l.serve()) }) {
		hangUp(l.conn)
		return nil, driver.ErrClosed
	}
	s.link = l
	s.d.waits.hear(true)
	return l, nil
}

// over ends what hung on a connection that is no more.
func (s *session) over(l *link, why error) {
	hangUp(l.conn)
	s.mu.Lock()
	s.link = nil
	clear(s.held)
	s.mu.Unlock()
	s.d.waits.hear(false)
	for _, le := range s.d.waits.told() {
		if le.lose(fmt.Errorf("%w: its session is over: %w", driver.ErrLost, why)) {
			s.d.waits.untell(le)
		}
	}
}

// An errEnded says that the session ended after the row had granted a lease, and before that had its lock.
type errEnded struct{ error }

func (e errEnded) Unwrap() error { return e.error }

// secure takes the advisory lock of a lease that the row has granted. Only strangers to us can have it, or a former
// holder whose hold was broken and who has not heard of it; they don't tell when they are done, so it is tried again and
// again, ten times a second for the whole process.
func (a *attempt) secure(ctx context.Context, le *lease) error {
	s := a.d.session
	if s == nil {
		le.grants()
		return nil
	}
	for {
		start, got, err := s.lock(ctx, a.entry.Session, le)
		switch {
		case err != nil:
			return errEnded{err}
		case got:
			le.grant.Start = start
			return nil
		case a.req.NoWait:
			return driver.ErrHeld
		}
		if err := s.pace.Wait(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// lock tries the advisory lock in the session with the given key.
func (s *session) lock(ctx context.Context, key int32, le *lease) (driver.Instant, bool, error) {
	l, err := s.get(ctx)
	if err != nil {
		return driver.Instant{}, false, err
	}
	if l.key != key {
		return driver.Instant{}, false, fmt.Errorf("%w: its session ended as it was granted", driver.ErrLost)
	}
	s.mu.Lock()
	_, again := s.held[le.nonce]
	le.asking = true
	s.mu.Unlock()
	call := le.key().call("pg_try_advisory_lock", le.req.Shared || le.req.Slots > 0)
	got := false // the call's, until it is answered: it goes on without us
	start, err := l.do(ctx, func(ctx context.Context) error {
		switch {
		case s.wasDropped(le):
			return driver.ErrLost // whoever asked did not wait for it
		case again: // its owner has asked for it once more
			if err := l.ping(ctx); err != nil {
				return err
			}
			got = true
			le.grants()
			return nil
		}
		if err := l.conn.QueryRow(ctx, `SELECT `+call.sql, call.args...).Scan(&got); err != nil || !got {
			return err
		}
		s.mu.Lock() // in the turn of the connection: neither its end nor unlock comes between
		defer s.mu.Unlock()
		s.held[le.nonce] = le
		le.grants()
		return nil
	})
	return start, err == nil && got, err
}

func (s *session) wasDropped(le *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return le.dropped
}

// unlock gives up the advisory lock of a lease, if the session has it or is about to get it. A lease that is not released
// but was never granted leaves alone what its owner has by an earlier one. A connection whose answer is in doubt is ended,
// and all its locks with it: better that they are lost, and told so, than held by nobody.
func (s *session) unlock(ctx context.Context, le *lease, granted bool) {
	ours := func() bool { // with the mutex held
		have := s.held[le.nonce]
		return have == le || have != nil && granted
	}
	s.mu.Lock()
	l := s.link
	le.dropped = true
	if !ours() && !le.asking {
		l = nil
	}
	s.mu.Unlock()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, life.Withdrawal)
	defer cancel()
	_, _ = l.do(ctx, func(ctx context.Context) error { // what fails ends the connection
		s.mu.Lock()
		has := ours()
		if has {
			delete(s.held, le.nonce)
		}
		s.mu.Unlock()
		if !has {
			return nil
		}
		return l.unlock(ctx, le)
	})
}

// unlock gives up the advisory lock of a lease, which the session has.
func (l *link) unlock(ctx context.Context, le *lease) error {
	call := le.key().call("pg_advisory_unlock", le.req.Shared || le.req.Slots > 0)
	var was bool
	err := l.conn.QueryRow(ctx, `SELECT `+call.sql, call.args...).Scan(&was)
	if err == nil && !was {
		err = errors.New("an advisory lock that we held was not ours any more")
	}
	if err != nil {
		return life.DoubtError{Err: err}
	}
	return nil
}

// ping asks whether the session lives, and returns the moment from which it is known to.
func (s *session) ping(ctx context.Context) (driver.Instant, error) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return driver.Instant{}, fmt.Errorf("%w: its session is over", driver.ErrLost)
	}
	return l.do(ctx, l.ping)
}

// close gives up what the session holds, and ends it.
func (s *session) close() {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	l := s.link
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), life.Withdrawal)
	defer cancel()
	for _, le := range held {
		_ = le.Release(ctx) // so that waiters hear of it; if they don't they find out
	}
	if l != nil {
		l.End(driver.ErrClosed)
	}
}

func (l *lease) key() Key { return l.d.conf.key(l.req.Name) }
