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
	"github.com/sniblock/snib/internal/life"
)

// NewSession returns a driver whose locks are the server's own, of GET_LOCK, all of them of one session, on one
// connection that is taken out of db for as long as the driver is open. They end with that session: at once when the
// process dies, and after [Timeout] when it is stopped or cut off. Who else uses the same names with GET_LOCK is excluded
// as well, see [Keys]. There are exclusive locks only.
//
// Who waits, and for whom, stands in a table as with [New], called snib_sessions; there tokens come from, too. It is
// written through other connections of db, which stays the caller's, and must be allowed two at least.
//
// A pooler before the server that shares connections is refused by each acquisition, as [driver.ErrInvalid]. So are
// servers of which only one is asked by each client, as in a Galera cluster behind a balancer: GET_LOCK excludes on one
// server only, which is not detected.
func NewSession(db *sql.DB, opts ...Option) *Driver {
	d := open(db, "snib_sessions", opts)
	d.session = &session{d: d, turn: make(semaphore, 1), held: map[string]*lease{}}
	if db != nil && db.Stats().MaxOpenConnections == 1 {
		d.conf.err = errors.Join(d.conf.err, fmt.Errorf("%w db: it may open one connection only, and a session needs one to itself",
			driver.ErrInvalid))
	}
	return d
}

// A session is the connection that holds the locks, and what hangs on it.
type session struct {
	d    *Driver
	turn semaphore // of one: to connect

	mu   sync.Mutex
	link *link // nil without a connection
	held map[string]*lease

	ended endedSet  // sessions of others
	pace  life.Pace // of the tries of locks that strangers have
}

func (s *session) describe(info *driver.Info) {
	info.Tenure = driver.TenureSession
	info.Shared, info.Slots = false, false
	info.MinTTL = 0
	info.Assumptions = append([]string{
		"all clients speak to the same server: GET_LOCK is not replicated",
		"the end of a connection on the server reaches the client within 90 ms, and the Go driver can tell it (checkConnLiveness, on Unix)",
	}, info.Assumptions[1:]...)
	info.Faults = driver.Faults{
		Pause:     "the server keeps the lock while the connection lives; what is written after its end, the resource must refuse by token",
		Crash:     "the lock is free when the server notices: of a process at once, of a host when TCP gives up",
		Failover:  "all locks are free; a holder is told within 10 ms of the end of its connection, or by a ping if it hears nothing of that",
		Partition: "the server keeps the lock until it notices; the holder is told before, unless its connection is killed meanwhile",
		ClockJump: "no effect on locks: sessions have no end",
	}
}

// key returns the lock by which others see that the session lives. It begins one if there is none.
func (s *session) key(ctx context.Context) (string, error) {
	l, err := s.get(ctx)
	if err != nil {
		return "", err
	}
	return l.key, nil
}

// get returns the session's connection.
func (s *session) get(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, life.Longest, errNoAnswer)
	defer cancel()
	leave, err := s.turn.enter(ctx)
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
	if !s.d.life.Go(func() { s.over(l, l.serve()) }) {
		hangUp(l.conn)
		return nil, driver.ErrClosed
	}
	s.link = l
	return l, nil
}

// over ends what hung on a connection that is no more.
func (s *session) over(l *link, why error) {
	hangUp(l.conn)
	s.mu.Lock()
	s.link = nil
	lost := slices.Collect(maps.Values(s.held))
	clear(s.held)
	s.mu.Unlock()
	for _, le := range lost {
		le.lose(fmt.Errorf("%w: its session is over: %w", driver.ErrLost, why))
		s.d.waits.untell(le)
	}
}

// An errEnded says that the session ended after the row had granted a lease, and before that had its lock.
type errEnded struct{ error }

func (e errEnded) Unwrap() error { return e.error }

// secure takes the server's lock of a lease that the row has granted. Only strangers to us can have it, or a former holder
// whose hold was broken and who has not heard of it; they don't tell when they are done, so it is tried again and again,
// ten times a second for the whole process.
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
			return errEnded{err}
		case got && first: // the hold counts since its row was written, as MinHold does
			return nil
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

// lock tries GET_LOCK in the session with the given key. The server gives a session the locks again that it has, so what
// two names have in common is looked up here.
func (s *session) lock(ctx context.Context, key string, le *lease) (driver.Instant, bool, error) {
	l, err := s.get(ctx)
	if err != nil {
		return driver.Instant{}, false, err
	}
	if l.key != key {
		return driver.Instant{}, false, fmt.Errorf("%w: its session ended as it was granted", driver.ErrLost)
	}
	got := false // the call's, until it is answered: it goes on without us
	start, err := l.do(ctx, func(ctx context.Context) error {
		again, free := s.take(le)
		if !free {
			return nil
		}
		if got = again; again { // its owner has asked for it once more
			return l.ping(ctx)
		}
		if err := l.getLock(ctx, le.key(), &got); err != nil || !got {
			s.forget(le)
			return err
		}
		if s.dropped(le) { // whoever asked did not wait for the answer
			return l.releaseLock(ctx, le.key())
		}
		return nil
	})
	return start, err == nil && got, err
}

// take notes that a lease is to have its lock. It is free unless another lease has the same; the session has it again if
// it is the same lease.
func (s *session) take(le *lease) (again, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again = s.held[le.nonce]; again {
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

func (s *session) forget(le *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[le.nonce] == le {
		delete(s.held, le.nonce)
	}
}

// dropped reports whether a lease was given up while its lock was asked for, and forgets it then.
func (s *session) dropped(le *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if le.dropped {
		delete(s.held, le.nonce)
	}
	return le.dropped
}

// unlock gives up the lock of a lease, if the session has it. A connection whose answer is in
// doubt is closed, and all its locks with it: better that they are lost, and told so, than held
// by nobody. unlock fails if ctx is done before the server has answered.
func (s *session) unlock(ctx context.Context, le *lease) error {
	s.mu.Lock()
	le.dropped = true
	l := s.link
	_, ours := s.held[le.nonce]
	s.mu.Unlock()
	if l == nil || !ours {
		return nil
	}
	_, err := l.do(ctx, func(ctx context.Context) error { // what fails ends the connection
		s.mu.Lock()
		_, ours := s.held[le.nonce]
		delete(s.held, le.nonce)
		s.mu.Unlock()
		if !ours {
			return nil
		}
		return l.releaseLock(ctx, le.key())
	})
	if ctx.Err() != nil && l.Context().Err() == nil {
		return err
	}
	return nil // the lock is given up, or has ended with the connection
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

// confirm answers renewals: what the session has and the rows know lasts.
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
		row := found[r.req.Name]
		r.say(!lost && s.has(r.lease) && row != nil && row.by(r.grant.Token) != nil, start)
	}
	return nil
}

// holds reports whether the session holds any locks.
func (s *session) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) > 0
}

// has reports whether the session holds the lock of a lease.
func (s *session) has(le *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[le.nonce]
	return held
}

// look ends the leases whose rows somebody has taken away.
func (s *session) look(ctx context.Context) {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	s.mu.Unlock()
	var all []string
	for _, le := range held {
		all = append(all, le.req.Name)
	}
	slices.Sort(all)
	found, err := s.d.read(ctx, slices.Compact(all))
	if err != nil || len(all) == 0 {
		return
	}
	for _, le := range held {
		if row := found[le.req.Name]; row == nil || row.by(le.grant.Token) == nil {
			le.lose(fmt.Errorf("%w: it was broken", driver.ErrLost))
			le.forget()
		}
	}
}

// close gives up what the session holds, and ends it.
func (s *session) close() {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	l := s.link
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), life.Withdrawal, errNoAnswer)
	defer cancel()
	for _, le := range held {
		_ = le.Release(ctx) // so that waiters hear of it; if they don't they find out
	}
	if l != nil {
		l.End(driver.ErrClosed)
	}
}

// sameSession reports whether a hold is one of the session that asks for it again. Rows have none.
func (d *Driver) sameSession(h, by *entry) bool { return h.Session == by.Session }

// takeoverDelay is how long another process waits before it takes a lock whose session has ended.
// In that time the end of the connection reaches the former holder, which is told first.
const takeoverDelay = 10 * watchInterval

// endSessions takes the holders out of states whose session has ended.
func (d *Driver) endSessions(ctx context.Context, states map[string]*state) error {
	if d.session == nil {
		return nil
	}
	ended, fresh := map[string]bool{}, false
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
			fresh = fresh || ended[h.Session]
		}
	}
	if fresh {
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
