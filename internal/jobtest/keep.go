package jobtest

import (
	"context"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
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
