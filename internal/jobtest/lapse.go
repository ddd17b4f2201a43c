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

// Lapse checks that a hold which the Locker ended by itself, before its first renewal,
// does not keep the lock taken for as long as the session lives. That holds if nobody
// releases it, and if its Release had to skip the store because of a LockDelay. open
// returns a new driver on the same store.
func Lapse(t *testing.T, open func() driver.Driver) {
	t.Helper()
	const maxHold, delay = 10 * time.Millisecond, 50 * time.Millisecond
	options := map[string][]snib.Option{"NotReleased": nil}
	ttl := max(time.Second, open().Info().SessionTTL)
	if open().Info().SessionTTL > delay {
		options["LockDelay"] = []snib.Option{snib.LockDelay(delay)}
	}
	for name, opts := range options {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
			defer cancel()
			opts := append(opts, snib.TTL(ttl), snib.MaxHold(maxHold))
			lost, err := locker(t, open()).With(opts...).Acquire(ctx, "lapse")
			if err != nil {
				t.Fatal(err)
			}
			<-lost.Lost()
			if name == "LockDelay" {
				if err := lost.Release(); !errors.Is(err, snib.ErrLost) {
					t.Errorf("Release of what was lost = %v, want ErrLost", err)
				}
			}
			next, err := locker(t, open()).Acquire(ctx, "lapse")
			if err != nil {
				t.Fatalf("Acquire after the hold was lost = %v", err)
			}
			if next.Token() <= lost.Token() {
				t.Errorf("Token = %d after %d", next.Token(), lost.Token())
			}
			if err := next.Release(); err != nil {
				t.Errorf("Release = %v", err)
			}
			_ = lost.Release() // returns ErrLost
		})
	}
}
