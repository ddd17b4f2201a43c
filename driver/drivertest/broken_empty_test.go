package drivertest

import (
	"context"

	"github.com/sniblock/snib/driver"
)

func emptyMutants() []mutant {
	// emptied reports whether the store was emptied.
	emptied := func(w *world) (is bool) {
		w.withLock(func() { is = w.flags[isEmptied] })
		return is
	}
	return []mutant{
		mutateRenewal("a hold that was deleted is renewed", "Empty/Renew",
			func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				if emptied(l.b.world) {
					return driver.Renewal{Start: driver.Now()}
				}
				return sound
			}),
		mutateRelease("a hold that was deleted is released", "Empty/Release", func(ctx context.Context, l *lease) error {
			if emptied(l.b.world) {
				_ = l.release(ctx)
				return nil
			}
			return l.release(ctx)
		}),
		mutateGrant("tokens begin anew in an empty store", "Empty/Grants", func(l *lease) {
			if l.b.world.flags[isEmptied] {
				l.grant.Token = 1
			}
		}),
		mutateAcquire("a waiter whose place was deleted waits for ever", "Empty/Waiter",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				before := emptied(w)
				l, err := b.acquire(ctx, req)
				if err == nil && !before && emptied(w) {
					return withhold(ctx, l)
				}
				return l, err
			}),
	}
}
