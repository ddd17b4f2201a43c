package snib_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// open returns a Locker on d that is closed at the end of the test.
func open(t testing.TB, d driver.Driver, opts ...snib.Option) *snib.Locker {
	t.Helper()
	l, err := snib.New(d, opts...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func acquire(t testing.TB, l *snib.Locker, name string) *snib.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), name)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", name, err)
	}
	return lock
}

func release(t testing.TB, lock *snib.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Fatalf("Release(%q): %v", lock.Name(), err)
	}
}

// wantErr fails the test unless err matches want. A nil want means success.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v, want %v", what, err, want)
	}
}

// bubble runs a subtest in fake time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// spy is a driver over memlock that counts calls, and whose calls a test can replace.
type spy struct {
	driver.Driver
	info    func(driver.Info) driver.Info
	acquire func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error)
	renew   func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal
	release func(context.Context, func() error) error

	together bool // the driver renews all leases together

	mu       sync.Mutex
	acquires int
	batches  []int // the sizes of the calls of Renew
	releases int
	held     map[*spyLease]driver.Request
}

func newSpy(s *memlock.Store) *spy {
	return &spy{Driver: s.Open(), held: map[*spyLease]driver.Request{}}
}

// eachKeeper runs a test in a bubble with a driver that renews each lease, and with one that renews
// all together.
func eachKeeper(t *testing.T, test func(t *testing.T, d *spy, store *memlock.Store)) {
	t.Helper()
	for _, together := range []bool{false, true} {
		bubble(t, fmt.Sprintf("Together=%t", together), func(t *testing.T) {
			store := new(memlock.Store)
			d := newSpy(store)
			d.together = together
			test(t, d, store)
		})
	}
}

func (s *spy) Info() driver.Info {
	info := s.Driver.Info()
	info.RenewsAll = s.together
	if s.info != nil {
		return s.info(info)
	}
	return info
}

func (s *spy) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	s.mu.Lock()
	s.acquires++
	s.mu.Unlock()
	send := func() (driver.Lease, error) { return s.Driver.Acquire(ctx, req) }
	var (
		l   driver.Lease
		err error
	)
	if s.acquire != nil {
		l, err = s.acquire(ctx, req, send)
	} else {
		l, err = send()
	}
	if l == nil || err != nil {
		return nil, err
	}
	held := &spyLease{Lease: l, spy: s}
	s.mu.Lock()
	s.held[held] = req
	s.mu.Unlock()
	return held, nil
}

func (s *spy) Lease(name, id string, ttl time.Duration) driver.Lease {
	return &spyLease{Lease: s.Driver.Lease(name, id, ttl), spy: s}
}

func (s *spy) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	s.mu.Lock()
	s.batches = append(s.batches, len(due))
	s.mu.Unlock()
	if s.together && len(due) == 0 {
		if s.renew != nil {
			return s.renew(ctx, due, func() []driver.Renewal { return s.renewAll(ctx) })
		}
		return s.renewAll(ctx)
	}
	inner := make([]driver.Lease, len(due))
	for i, l := range due {
		inner[i] = l.(*spyLease).Lease
	}
	send := func() []driver.Renewal { return s.Driver.Renew(ctx, inner) }
	if s.renew != nil {
		return s.renew(ctx, due, send)
	}
	return send()
}

// renewAll renews all leases, and tells of losses by OnLost.
func (s *spy) renewAll(ctx context.Context) []driver.Renewal {
	answer := driver.Renewal{Start: driver.Now()}
	s.mu.Lock()
	held := maps.Clone(s.held)
	s.mu.Unlock()
	for l, req := range held {
		switch got := s.Driver.Renew(ctx, []driver.Lease{l.Lease})[0]; {
		case errors.Is(got.Err, driver.ErrLost):
			req.OnLost(got.Err)
		case got.Err != nil:
			answer = got
		}
	}
	return []driver.Renewal{answer}
}

func (s *spy) count() (acquires, releases int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquires, s.releases
}

// renewals returns the sizes of the calls of Renew.
func (s *spy) renewals() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

type spyLease struct {
	driver.Lease
	spy *spy
}

func (l *spyLease) Release(ctx context.Context) error {
	l.spy.mu.Lock()
	l.spy.releases++
	delete(l.spy.held, l)
	l.spy.mu.Unlock()
	send := func() error { return l.Lease.Release(ctx) }
	if l.spy.release != nil {
		return l.spy.release(ctx, send)
	}
	return send()
}

// hang stands for a store that does not answer, and for a driver that ignores its context.
func hang(until <-chan struct{}) func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal {
	return func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal {
		<-until
		return nil
	}
}

// unreachable answers as a driver does whose store is out of reach.
func unreachable(_ context.Context, due []driver.Lease, _ func() []driver.Renewal) []driver.Renewal {
	answers := make([]driver.Renewal, max(1, len(due)))
	for i := range answers {
		answers[i].Err = errUnreachable
	}
	return answers
}

var errUnreachable = errors.New("no route to host")

const ttl = 30 * time.Second
