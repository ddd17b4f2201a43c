package jobtest

import (
	"context"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// Keep acquires a lock and renews it, as a holder does, until abandon is called. Then the lease
// is what a killed process leaves.
func Keep(t testing.TB, d driver.Driver, req driver.Request) (abandon func()) {
	t.Helper()
	l, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	return KeepUp(t, d, l, req.TTL)
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
func KeepThrough(t testing.TB, proxies []*livetest.Proxy, d driver.Driver, req driver.Request) (kill func()) {
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
type Paths map[driver.Driver][]*livetest.Proxy

// Sever is the function of the same name in the suite's harness.
func (p Paths) Sever(_ *testing.T, d driver.Driver) (heal func()) {
	return livetest.All(p[d], (*livetest.Proxy).Sever)
}

// Stall is the function of the same name in the suite's harness.
func (p Paths) Stall(_ *testing.T, d driver.Driver) (deliver func()) {
	return livetest.All(p[d], (*livetest.Proxy).StallConnected)
}
