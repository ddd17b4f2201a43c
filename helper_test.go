package snib_test

import (
	"context"
	"errors"
	"sync"
	"testing"
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

	mu       sync.Mutex
	acquires int
	batches  []int // the sizes of the calls of Renew
	releases int
}

func newSpy(s *memlock.Store) *spy { return &spy{Driver: s.Open()} }

func (s *spy) Info() driver.Info {
	if s.info != nil {
		return s.info(s.Driver.Info())
	}
	return s.Driver.Info()
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
	return &spyLease{Lease: l, spy: s}, nil
}

func (s *spy) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	s.mu.Lock()
	s.batches = append(s.batches, len(due))
	s.mu.Unlock()
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

func (s *spy) count() (acquires, releases int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquires, s.releases
}

type spyLease struct {
	driver.Lease
	spy *spy
}

func (l *spyLease) Release(ctx context.Context) error {
	l.spy.mu.Lock()
	l.spy.releases++
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
	answers := make([]driver.Renewal, len(due))
	for i := range answers {
		answers[i].Err = errUnreachable
	}
	return answers
}

var errUnreachable = errors.New("no route to host")

const ttl = 30 * time.Second
