package livetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// A resource is what a lock guards. It checks that tokens increase, and that nobody enters while
// the hold of another is valid.
type resource struct {
	name string
	ttl  time.Duration

	mu    sync.Mutex
	last  uint64
	until driver.Instant // while the last hold is valid; zero after its end
}

// Contend takes two locks through all drivers at the same time, rounds times each, and checks the
// holds. The store may be unavailable at times.
func Contend[D driver.Driver](t *testing.T, drivers []D, rounds int, ttl time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		r := &resource{name: name, ttl: ttl}
		for i, d := range drivers {
			all.Go(func() {
				for n := range rounds {
					r.cycle(t, d, fmt.Sprint("owner ", i, name, n))
				}
			})
		}
	}
	all.Wait()
}

// cycle acquires the lock and releases it.
func (r *resource) cycle(t *testing.T, d driver.Driver, id string) {
	req := driver.Request{Name: r.name, ID: id, TTL: r.ttl}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	l, err := d.Acquire(ctx, req)
	if err != nil {
		Want(t, err, driver.ErrUnavailable, "Acquire")
		return
	}
	r.enter(t, l)
	r.leave(l)
	if err := l.Release(ctx); err != nil && !errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Release = %v", err)
	}
}

// enter begins a hold, unless it is no longer valid.
func (r *resource) enter(t *testing.T, l driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, token, until := driver.Now(), l.Grant().Token, l.Grant().Start.Add(r.ttl)
	if until.Reached(now) {
		return
	}
	if token <= r.last {
		t.Errorf("%q: token %d after %d", r.name, token, r.last)
	}
	if !r.until.IsZero() && !r.until.Reached(now) {
		t.Errorf("%q: two holders", r.name)
	}
	r.last, r.until = token, until
}

// leave ends a hold.
func (r *resource) leave(l driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == l.Grant().Token {
		r.until = driver.Instant{}
	}
}
