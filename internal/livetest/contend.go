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
// holds. Each id is unique, but some ask again, as after a lost answer. The store may be
// unavailable at times.
func Contend[D driver.Driver](t *testing.T, drivers []D, rounds int, ttl time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		r := &resource{name: name, ttl: ttl}
		for i, d := range drivers {
			all.Go(func() {
				for n := range rounds {
					r.cycle(t, d, fmt.Sprint("owner ", i, name, n), n%8 == 0)
				}
			})
		}
	}
	all.Wait()
}

// cycle acquires the lock and releases it.
func (r *resource) cycle(t *testing.T, d driver.Driver, id string, again bool) {
	req := driver.Request{Name: r.name, ID: id, TTL: r.ttl}
	l, err := tryFor(t, d, req)
	if err != nil {
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire = %v", err)
		}
		return
	}
	r.enter(t, l)
	if again {
		if l2, err := tryFor(t, d, req); err == nil {
			l = r.replace(t, l, l2)
		}
	}
	r.leave(l)
	ctx, cancel := context.WithTimeout(t.Context(), contendTimeout)
	defer cancel()
	if err := l.Release(ctx); err != nil && !errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Release = %v", err)
	}
}

// contendTimeout is how long one request of Contend may take.
const contendTimeout = 15 * time.Second

func tryFor(t *testing.T, d driver.Driver, req driver.Request) (driver.Lease, error) {
	ctx, cancel := context.WithTimeout(t.Context(), contendTimeout)
	defer cancel()
	return d.Acquire(ctx, req)
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

// replace continues a hold with the lease that its attempt got when it asked again, and returns the
// lease to release.
func (r *resource) replace(t *testing.T, l, again driver.Lease) driver.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, is := l.Grant().Token, again.Grant().Token
	if r.last != was {
		return l
	}
	if !r.until.Reached(driver.Now()) && is < was {
		t.Errorf("%q: the hold's token %d became %d", r.name, was, is)
	}
	r.last = is
	return again
}

// leave ends a hold.
func (r *resource) leave(l driver.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == l.Grant().Token {
		r.until = driver.Instant{}
	}
}
