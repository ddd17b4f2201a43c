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
	ctx, cancel := context.WithCancel(t.Context())
	l, err := d.Acquire(ctx, req)
	if err != nil {
		cancel()
		t.Fatalf("Acquire = %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(req.TTL / 3)
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
	abandon = func() { cancel(); <-done }
	t.Cleanup(abandon)
	return abandon
}
