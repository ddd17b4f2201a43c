package memlock

import (
	"context"
	"slices"
	"strings"

	"github.com/sniblock/snib/driver"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (st driver.Status, err error) {
	err = d.update(ctx, name, func(k *lock, now driver.Instant) error {
		k.serve(now) // those that wait for the end of a lease that has just expired
		st = k.status(now)
		return nil
	})
	return st, err
}

// List implements [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	if d.isClosed() {
		return driver.ErrClosed
	}
	for _, name := range d.store.names(prefix) {
		st, err := d.Status(ctx, name)
		if err != nil {
			return err
		}
		if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
			return nil
		}
	}
	return nil
}

func (s *Store) names(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.locks {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, id string) error {
	return d.update(ctx, name, func(k *lock, _ driver.Instant) error {
		for _, l := range k.holders {
			if l.req.ID == id {
				k.remove(l)
				l.tellLost()
				return nil
			}
		}
		return driver.ErrLost
	})
}

// Withdraw implements [driver.Inspector]. All waiters are alive, so it moves one to the end of the
// queue.
func (d *Driver) Withdraw(ctx context.Context, name, id string) error {
	return d.update(ctx, name, func(k *lock, _ driver.Instant) error {
		if i := slices.IndexFunc(k.queue, func(w *waiter) bool { return w.req.ID == id }); i >= 0 {
			w := k.queue[i]
			k.queue = append(slices.Delete(k.queue, i, i+1), w)
		}
		return nil
	})
}

// status returns the status of the lock.
func (k *lock) status(now driver.Instant) driver.Status {
	st := driver.Status{Name: k.name}
	for i, l := range k.holders {
		if st.Shared = l.req.Shared; i == 0 || l.req.Slots < st.Slots {
			st.Slots = l.req.Slots
		}
		st.Holders = append(st.Holders, driver.Holding{
			ID: l.req.ID, Token: l.grant.Token, Holder: l.req.Holder,
			Held: max(1, now.Sub(l.grant.Start)), Left: l.left(now), // 0 would mean that nobody knows
		})
	}
	for i, w := range k.queue {
		if i == 0 && len(k.holders) == 0 {
			st.Shared, st.Slots = w.req.Shared, w.req.Slots
		}
		st.Waiters = append(st.Waiters, driver.Waiting{
			ID: w.req.ID, Shared: w.req.Shared, Holder: w.req.Holder, Waited: now.Sub(w.since),
		})
	}
	return st
}
