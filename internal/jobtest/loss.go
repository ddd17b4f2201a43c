package jobtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// AcquireTold acquires a lease. It returns the lease, and a channel that receives its loss.
func AcquireTold(t testing.TB, d driver.Driver, req driver.Request) (driver.Lease, <-chan error) {
	t.Helper()
	losses := make(chan error, 2) // one more than expected
	req.OnLost = func(err error) {
		select {
		case losses <- err:
		default:
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	l, err := d.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("Acquire of %q for %s = %v", req.Name, req.Owner, err)
	}
	return l, losses
}

// AwaitLoss waits until the loss is reported, and returns how long that took.
func AwaitLoss(t testing.TB, losses <-chan error, within time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case err := <-losses:
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("OnLost was called with %v, want ErrLost", err)
		}
	case <-timer.C:
		t.Fatalf("OnLost was not called within %v", within)
	}
	return time.Since(began)
}
