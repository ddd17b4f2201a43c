package livetest

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
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
	return Acquire(t, d, req), losses
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

// RenewAll renews all leases of a driver that renews them together (driver.Info.RenewsAll).
func RenewAll(t testing.TB, d driver.Driver) {
	t.Helper()
	if got := d.Renew(t.Context(), nil); len(got) != 1 || got[0].Err != nil {
		t.Fatalf("Renew of all leases = %v", got)
	}
}

// CheckOnlyLost checks that the holder of one lease was told of its loss, and no other. The
// channels are those of [AcquireTold]. With -1, nobody was to be told.
func CheckOnlyLost(t testing.TB, losses []<-chan error, lost int) {
	t.Helper()
	for i, told := range losses {
		select {
		case err := <-told:
			if i != lost || !errors.Is(err, driver.ErrLost) {
				t.Fatalf("the holder of lease %d was told %v; lease %d was ended", i, err, lost)
			}
		default:
			if i == lost {
				t.Fatalf("the holder of lease %d was not told that it was ended", i)
			}
		}
	}
}
