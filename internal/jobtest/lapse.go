package jobtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// Lapse checks that a hold which the Locker ended by itself does not keep the lock taken: one that
// ended before its first renewal, and one with NoRenewal, which ends with its TTL. That holds if
// nobody releases it, and if its Release had to skip the store because of a LockDelay. open returns
// a new driver on the same store.
func Lapse(t *testing.T, open func() driver.Driver) {
	t.Helper()
	const maxHold, delay = 10 * time.Millisecond, 50 * time.Millisecond
	info := open().Info()
	options := map[string][]snib.Option{"NotReleased": {snib.MaxHold(maxHold)}, "NoRenewal": {snib.NoRenewal()}}
	if info.Tenure == driver.TenureLease || info.SessionTTL > delay {
		options["LockDelay"] = []snib.Option{snib.MaxHold(maxHold), snib.LockDelay(delay)}
	}
	for name, opts := range options {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
			defer cancel()
			opts := append(opts, snib.TTL(max(time.Second, info.SessionTTL)))
			lost, err := locker(t, open()).With(opts...).Acquire(ctx, "lapse")
			if err != nil {
				t.Fatal(err)
			}
			if name == "LockDelay" {
				<-lost.Lost()
				if err := lost.Release(); !errors.Is(err, snib.ErrLost) {
					t.Errorf("Release of what was lost = %v, want ErrLost", err)
				}
			}
			next, err := locker(t, open()).Acquire(ctx, "lapse")
			if err != nil {
				t.Fatalf("Acquire after the end of the hold = %v", err)
			}
			if left := lost.Validity(); left > 0 {
				t.Errorf("the lock was granted to another %v before the end of the hold", left)
			}
			if next.Token() <= lost.Token() {
				t.Errorf("Token = %d after %d", next.Token(), lost.Token())
			}
			<-lost.Lost()
			if err := lost.Release(); !errors.Is(err, snib.ErrLost) {
				t.Errorf("Release of what was lost = %v, want ErrLost", err)
			}
			if err := next.Release(); err != nil {
				t.Errorf("Release = %v", err)
			}
		})
	}
}
