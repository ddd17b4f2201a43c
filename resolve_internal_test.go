package snib

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sniblock/snib/driver"
)

// After a suspend that outlasts the lease, Reentrant joins no hold that the keeper, which looks a
// moment later, has not ended yet: another host may have the lock.
func TestHoldThatIsOverIsNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lock := openHolding(t, Reentrant())
		ctx := lock.Context()
		synctest.Wait() // the keeper sleeps from here on
		l.core.mu.Lock()
		lock.hold.lease.deadline = driver.Now()
		l.core.mu.Unlock()
		if _, err := l.TryAcquire(ctx, "a"); !errors.Is(err, ErrHeld) {
			t.Errorf("TryAcquire when the hold is over = %v, want %v", err, ErrHeld)
		}
		if ctx.Err() != nil {
			t.Error("the keeper has ended the hold, so this test shows nothing")
		}
	})
}
