package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/memlock"
)

// sessionTTL is how long a session outlives its process. The session renews itself three times
// within it.
const sessionTTL = 3 * time.Second

// A session is a sound driver whose leases end together: leases of memlock, kept alive by one
// heartbeat.
type session struct {
	*memlock.Driver

	lossReachesOne bool  // a mutation: when a session is lost, only one of its leases is told
	lossErr        error // the error that they are told

	// severed is set under mu, and read without it: OnLost reads it under the mutex of the store,
	// which heartbeat locks while it holds mu.
	severed atomic.Bool

	mu             sync.Mutex
	leases         map[*sessionLease]bool
	ended          bool // closed or killed
	deadline       time.Time
	heartbeatTimer *time.Timer
}

type sessionLease struct {
	driver.Lease
	s      *session
	onLost func(error)   // Request.OnLost
	delay  time.Duration // Request.LockDelay
}

func newSession(w *world) driver.Driver {
	s := &session{
		Driver: w.store.Open(), leases: make(map[*sessionLease]bool), deadline: time.Now().Add(sessionTTL),
		lossErr: fmt.Errorf("%w: the session is over", driver.ErrLost),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeatTimer = time.AfterFunc(0, s.heartbeat)
	w.t.Cleanup(func() { s.heartbeatTimer.Stop() })
	return s
}

// heartbeat renews all leases. If the session is severed, it ends them a little before the
// store does.
func (s *session) heartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	const margin = 100 * time.Millisecond
	switch {
	case s.ended:
		return
	case !s.severed.Load():
		for l := range s.leases {
			s.Driver.Renew(context.Background(), []driver.Lease{l.Lease})
		}
		s.deadline = time.Now().Add(sessionTTL)
	case time.Until(s.deadline) <= margin:
		for l := range s.leases {
			l.onLost(s.lossErr)
			delete(s.leases, l)
			if s.lossReachesOne {
				clear(s.leases)
			}
		}
	}
	s.heartbeatTimer.Reset(min(sessionTTL/3, max(time.Until(s.deadline)-margin, margin)))
}

func (s *session) Info() driver.Info {
	info := s.Driver.Info()
	info.Tenure, info.SessionTTL, info.RenewsAll = driver.TenureSession, sessionTTL, true
	return info
}

func (s *session) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if req.Detached {
		return nil, fmt.Errorf("%w: a session can't be outlived", driver.ErrInvalid)
	}
	req.TTL = sessionTTL
	var once sync.Once
	told := req.OnLost
	onLost := func(err error) {
		if told != nil {
			once.Do(func() { told(err) })
		}
	}
	req.OnLost = func(err error) {
		if !s.severed.Load() {
			onLost(err)
		}
	}
	l, err := s.Driver.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &sessionLease{Lease: l, s: s, onLost: onLost, delay: req.LockDelay}
	s.leases[sl] = true
	return sl, nil
}

func (s *session) Lease(_, id string, _ time.Duration) driver.Lease { return driverkit.RemoteLease(id) }

func (s *session) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	if len(due) == 0 {
		return []driver.Renewal{s.renewAll(ctx)}
	}
	answers := make([]driver.Renewal, len(due))
	for i, l := range due {
		answers[i].Err = driverkit.RemoteError()
		if l, ok := l.(*sessionLease); ok {
			answers[i] = s.Driver.Renew(ctx, []driver.Lease{l.Lease})[0]
		}
	}
	return answers
}

func (s *session) renewAll(ctx context.Context) driver.Renewal {
	answer := driver.Renewal{Start: driver.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.leases {
		switch got := s.Driver.Renew(ctx, []driver.Lease{l.Lease})[0]; {
		case errors.Is(got.Err, driver.ErrLost):
			l.onLost(got.Err)
			delete(s.leases, l)
		case got.Err != nil:
			answer = got
		}
	}
	return answer
}

func (s *session) Close() error {
	for _, l := range s.end() {
		if l.delay == 0 {
			_ = l.Lease.Release(context.Background())
		}
	}
	return s.Driver.Close()
}

// end stops the heartbeat, and returns the leases whose end the store can be told. It is a copy,
// because a call of Acquire that gives up may remove its lease at the same time.
func (s *session) end() []*sessionLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	reachable := !s.ended && !s.severed.Load()
	s.ended = true
	s.heartbeatTimer.Stop()
	if !reachable {
		return nil
	}
	return slices.Collect(maps.Keys(s.leases))
}

func (s *session) kill() { s.end() }

func (s *session) sever(severed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.severed.Store(severed)
}

func (l *sessionLease) Grant() driver.Grant {
	g := l.Lease.Grant()
	g.TTL = sessionTTL
	return g
}

func (l *sessionLease) Release(ctx context.Context) error {
	l.s.mu.Lock()
	delete(l.s.leases, l)
	l.s.mu.Unlock()
	return l.Lease.Release(context.WithoutCancel(ctx))
}

// TestSessionBreak breaks leases of a session during its heartbeats. Neither waits for the other.
func TestSessionBreak(t *testing.T) {
	w := &world{t: t, store: new(memlock.Store)}
	s := newSession(w).(*session)
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ended:
				return
			default:
				s.heartbeat()
			}
		}
	}()
	go func() {
		defer close(ended)
		for range 1000 {
			_, err := s.Acquire(t.Context(), driver.Request{Name: "a", ID: "b", TTL: sessionTTL})
			if err == nil {
				err = s.Break(t.Context(), "a", "b")
			}
			if err != nil {
				t.Errorf("acquire and break a lease: %v", err)
				return
			}
		}
	}()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second): // it takes milliseconds
		t.Fatal("Break and the heartbeat wait for each other")
	}
}

func sessionMutants() []mutant {
	const name = "Session/LossReachesEveryLease"
	return []mutant{
		{
			name: "of the leases of a lost session only the first is told", fails: []string{name}, base: newSession,
			make: func(w *world) func(*brokenDriver) {
				return func(b *brokenDriver) { b.base.(*session).lossReachesOne = true }
			},
		},
		{
			name: "a lost session is told as just any error", fails: []string{name, "Sever/HolderKnowsFirst"},
			whySeveral: "a holder that is cut off is told in the same way", base: newSession,
			make: func(w *world) func(*brokenDriver) {
				return func(b *brokenDriver) { b.base.(*session).lossErr = errors.New("connection reset by peer") }
			},
		},
		{
			name: "Close leaves the session to its timeout", fails: []string{"Session/CloseEnds"}, base: newSession,
			set: func(_ *world, b *brokenDriver) {
				b.onClose = func() error {
					b.base.(*session).end()
					return b.inner.Close()
				}
			},
		},
		{
			name: "Close cuts a LockDelay short", fails: []string{"Session/CloseKeepsDelay"}, base: newSession,
			set: func(_ *world, b *brokenDriver) {
				b.onClose = func() error {
					for _, l := range b.base.(*session).end() {
						_ = l.Lease.Release(context.Background())
					}
					return b.inner.Close()
				}
			},
		},
		{
			name: "a release whose context is done does nothing", fails: []string{"Session/LateRelease"}, base: newSession,
			set: func(_ *world, b *brokenDriver) {
				b.onRelease = func(ctx context.Context, l *lease) error {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					return l.release(ctx)
				}
			},
		},
		{
			name: "a session ends with its process", fails: []string{"Close/SessionOutlivesKill"}, base: newSession,
			set: func(_ *world, b *brokenDriver) {
				b.onGrant = func(l *lease) { b.onKill = func() { _ = l.release(context.Background()) } }
			},
		},
		{
			name: "a detached lease is granted within a session", fails: []string{"Close/DetachedRefused"}, base: newSession,
			set: func(_ *world, b *brokenDriver) {
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					req.Detached = false
					return b.acquire(ctx, req)
				}
			},
		},
	}
}
