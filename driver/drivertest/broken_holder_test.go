package drivertest

import (
	"context"
	"errors"

	"github.com/sniblock/snib/driver"
)

func holderMutants() []mutant {
	return []mutant{
		{
			name: "a renewal brings the first holder back", fails: []string{"Holder/Shown"},
			set: func(_ *world, b *brokenDriver) {
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
					for _, one := range due {
						if l := one.(*lease); l.Lease != nil {
							_ = l.Lease.SetHolder(ctx, l.req.Holder)
						}
					}
					return b.renew(ctx, due)
				}
			},
		},
		{
			name: "a new holder has a new lease, behind those that wait", fails: []string{"Holder/KeepsQueue"},
			set: func(w *world, b *brokenDriver) {
				b.onHolder = func(ctx context.Context, l *lease, h driver.Holder) error {
					if len(w.status(l.req.Name).Waiters) > 0 {
						return l.release(ctx)
					}
					return l.Lease.SetHolder(ctx, h)
				}
			},
		},
		{
			name: "nobody is told that the lease has ended", fails: []string{"Holder/Ended"},
			set: func(_ *world, b *brokenDriver) {
				b.onHolder = func(ctx context.Context, l *lease, h driver.Holder) error {
					if err := l.Lease.SetHolder(ctx, h); !errors.Is(err, driver.ErrLost) {
						return err
					}
					return nil
				}
			},
		},
		{
			name: "a description is that of all holders", fails: []string{"Holder/One"},
			make: func(w *world) func(*brokenDriver) {
				holders := make(map[string]driver.Holder)
				return func(b *brokenDriver) {
					b.onHolder = func(ctx context.Context, l *lease, h driver.Holder) error {
						err := l.Lease.SetHolder(ctx, h)
						w.mu.Lock()
						defer w.mu.Unlock()
						if err == nil {
							holders[l.req.Name] = h
						}
						return err
					}
					b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
						st, err := b.inner.Status(ctx, name)
						w.mu.Lock()
						defer w.mu.Unlock()
						for i := range st.Holders {
							if h, changed := holders[name]; changed {
								st.Holders[i].Holder = h
							}
						}
						return st, err
					}
				}
			},
		},
	}
}
