package drivertest

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver"
)

func grantMutants() []mutant {
	// mutateNamed returns a mutant whose leases by name and id are changed.
	mutateNamed := func(name, fails string, shape func(w *world, l *lease)) mutant {
		return mutant{
			name: name, fails: []string{fails},
			set: func(w *world, b *brokenDriver) { b.onLease = func(l *lease) { shape(w, l) } },
		}
	}
	return []mutant{
		{
			name: "a lease is known by another id", whySeveral: "a lease is also found and broken by its id",
			fails: []string{
				"Grant/ID", "Inspect/Held", "Holder/Shown", "Holder/One", "Holder/Ended",
				"Break/TellsHolder", "Break/OneOfMany", "Break/Frees",
			},
			set: func(_ *world, b *brokenDriver) { b.onGrant = func(l *lease) { l.id = "another" } },
		},
		mutateNamed("only the process that acquired a lease can keep it", "Grant/OtherProcess", func(_ *world, l *lease) {
			if l.req.TTL > time.Minute/3 { // Grant/NeverShortened has a short one
				l.Lease = l.b.inner.Lease(l.req.Name, "nobody", l.req.TTL)
			}
		}),
		{
			name: "another session acts on a lease", fails: []string{"Grant/OtherSession"}, base: newSession,
			set: func(_ *world, b *brokenDriver) {
				b.onLease = func(l *lease) { l.Lease = b.base.(*session).Driver.Lease(l.req.Name, l.req.ID, l.req.TTL) }
			},
		},
		mutateRelease("a waiter is released", "Grant/NotWaiting", func(ctx context.Context, l *lease) error {
			if len(l.b.world.status(l.req.Name).Waiters) > 0 && l.grant.Start.IsZero() { // a lease by name and id
				return nil
			}
			return l.release(ctx)
		}),
		mutateRelease("MinHold counts from the request", "Grant/MinHoldOfWaiter", func(ctx context.Context, l *lease) error {
			if l.waited && l.req.MinHold > 0 {
				time.AfterFunc(time.Until(l.requestedAt.Add(l.req.MinHold)), l.breakAll)
			}
			return l.release(ctx)
		}),
		mutateNamed("a late request acts on the present holder", "Grant/AnotherID", func(w *world, l *lease) {
			if st := w.status(l.req.Name); len(st.Holders) == 1 {
				l.Lease = l.b.inner.Lease(l.req.Name, st.Holders[0].ID, l.req.TTL)
			}
		}),
		{
			name: "a renewal sets the end of a lease", fails: []string{"Grant/NeverShortened"},
			set: func(w *world, b *brokenDriver) {
				b.renewEach(func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
					if sound.Err == nil && l.grant.Start.IsZero() { // a lease by name and id
						d := w.store.Open()
						time.AfterFunc(l.req.TTL, func() { _ = d.Break(context.Background(), l.req.Name, l.req.ID) })
					}
					return sound
				})
			},
		},
		{
			name: "what MinHold keeps can't be broken", fails: []string{"Grant/MinHold"},
			set: func(w *world, b *brokenDriver) {
				b.onBreak = func(ctx context.Context, name, id string) error {
					if st := w.status(name); len(st.Holders) > 0 && st.Holders[0].Holder.Kind == driver.KindKept {
						return driver.ErrLost
					}
					return b.inner.Break(ctx, name, id)
				}
			},
		},
	}
}
