package drivertest

import (
	"context"
	"errors"

	"github.com/sniblock/snib/driver"
)

func labelMutants() []mutant {
	return []mutant{
		{
			name: "a renewal brings the first label back", fails: []string{"Label/Shown"},
			set: func(_ *world, b *brokenDriver) {
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
					for _, one := range due {
						if l := one.(*lease); l.Lease != nil {
							_ = l.Lease.SetLabel(ctx, l.req.Holder.Label)
						}
					}
					return b.renew(ctx, due)
				}
			},
		},
		{
			name: "a new label is a new lease, behind those that wait", fails: []string{"Label/KeepsQueue"},
			set: func(w *world, b *brokenDriver) {
				b.onLabel = func(ctx context.Context, l *lease, label string) error {
					if len(w.status(l.req.Name).Waiters) > 0 {
						return l.release(ctx)
					}
					return l.Lease.SetLabel(ctx, label)
				}
			},
		},
		{
			name: "nobody is told that the lease has ended", fails: []string{"Label/Ended"},
			set: func(_ *world, b *brokenDriver) {
				b.onLabel = func(ctx context.Context, l *lease, label string) error {
					if err := l.Lease.SetLabel(ctx, label); !errors.Is(err, driver.ErrLost) {
						return err
					}
					return nil
				}
			},
		},
		{
			name: "a label is that of all holders", fails: []string{"Label/One"},
			make: func(w *world) func(*brokenDriver) {
				labels := make(map[string]string)
				return func(b *brokenDriver) {
					b.onLabel = func(ctx context.Context, l *lease, label string) error {
						err := l.Lease.SetLabel(ctx, label)
						w.mu.Lock()
						defer w.mu.Unlock()
						if err == nil {
							labels[l.req.Name] = label
						}
						return err
					}
					b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
						st, err := b.inner.Status(ctx, name)
						w.mu.Lock()
						defer w.mu.Unlock()
						for i := range st.Holders {
							if label, changed := labels[name]; changed {
								st.Holders[i].Holder.Label = label
							}
						}
						return st, err
					}
				}
			},
		},
	}
}
