package livetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// Hold is the job of a [Child] that keeps a lock. It acquires the lock, says "held" and the token,
// and renews the lease until ctx is done. When a renewal reports a loss, it says "lost", and then
// "late" and the result of a release.
func Hold(ctx context.Context, d driver.Driver, req driver.Request) error {
	l, err := d.Acquire(ctx, req)
	if err != nil {
		return err
	}
	Say("held", l.Grant().Token)
	tick := time.NewTicker(req.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.Renew(ctx, []driver.Lease{l})[0].Err; errors.Is(err, driver.ErrLost) {
				Say("lost", err)
				Say("late", l.Release(context.WithoutCancel(ctx)))
				return nil
			}
		case <-ctx.Done():
			return l.Release(context.WithoutCancel(ctx))
		}
	}
}

// Acquire acquires a lock that is free, or will be soon. The store may need several tries to answer
// in time.
func Acquire(t testing.TB, d driver.Driver, req driver.Request) (l driver.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	id, tries := req.ID, 0
	Await(t, "lease", func() (err error) {
		t.Helper()
		if tries++; tries > 1 { // no two calls may have the same id
			req.ID = fmt.Sprint(id, "-", tries)
		}
		if l, err = d.Acquire(ctx, req); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("Acquire of %q for %s = %v", req.Name, req.ID, err)
		}
		return err
	})
	return l
}

// Release releases a lease that is not lost.
func Release(t testing.TB, l driver.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience) // also in a cleanup
	defer cancel()
	Must(t, l.Release(ctx), "Release")
}

// CheckHeld checks that a lock is held.
func CheckHeld(t testing.TB, d driver.Driver, name, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if _, err := d.Acquire(ctx, driver.Request{Name: name, ID: "a stranger", TTL: time.Minute, NoWait: true}); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire with NoWait %s = %v, want ErrHeld", when, err)
	}
}

// Keep acquires a lock and renews it, as a holder does, until abandon is called. Then the lease
// is what a killed process leaves.
func Keep(t testing.TB, d driver.Driver, req driver.Request) (abandon func()) {
	t.Helper()
	return KeepUp(t, d, Acquire(t, d, req), req.TTL)
}

// KeepUp renews a lease, as a holder does, until stop is called.
func KeepUp(t testing.TB, d driver.Driver, l driver.Lease, ttl time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.Renew(ctx, []driver.Lease{l})
			case <-ctx.Done():
				return
			}
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// KeepThrough is Keep for a driver that reaches its store through proxies of its own. kill cuts
// them, too, so that the store sees what it sees of a killed process.
func KeepThrough(t testing.TB, proxies []*Proxy, d driver.Driver, req driver.Request) (kill func()) {
	t.Helper()
	abandon := Keep(t, d, req)
	return func() {
		for _, p := range proxies {
			p.Cut()
			p.Sever()
		}
		abandon()
	}
}

// Paths has the proxies through which each driver of a conformance test reaches its store.
type Paths map[driver.Driver][]*Proxy

// Sever is the function of the same name in the suite's harness.
func (p Paths) Sever(_ *testing.T, d driver.Driver) (heal func()) {
	return All(p[d], (*Proxy).Sever)
}

// Stall is the function of the same name in the suite's harness.
func (p Paths) Stall(_ *testing.T, d driver.Driver) (deliver func()) {
	return All(p[d], (*Proxy).StallConnected)
}
