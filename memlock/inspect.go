package memlock

import (
	"context"
	"slices"
	"strings"

	"github.com/sniblock/snib/driver"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(_ context.Context, name string) (driver.Status, error) {
	s, now := d.store, driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.isClosed() {
		return driver.Status{}, driver.ErrClosed
	}
	k := s.locks[name]
	if k == nil {
		return driver.Status{Name: name}, nil
	}
	k.expire(now)
	s.grantWaiters(k, now)
	return k.status(now), nil
}

// List implements [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	if d.isClosed() {
		return driver.ErrClosed
	}
	for _, name := range d.names(prefix) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
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

func (d *Driver) names(prefix string) []string {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	var names []string
	for name := range d.store.locks {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Break implements [driver.Inspector].
func (d *Driver) Break(_ context.Context, name, owner string, token uint64) error {
	s, now := d.store, driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.isClosed() {
		return driver.ErrClosed
	}
	k := s.locks[name]
	if k == nil {
		return driver.ErrLost
	}
	k.expire(now)
	defer s.grantWaiters(k, now)
	for _, l := range k.holders {
		if l.req.Owner == owner && l.token == token {
			k.remove(l, lost)
			for _, r := range l.listeners {
				if r.onLost != nil {
					r.onLost(driver.ErrLost)
				}
			}
			return nil
		}
	}
	return driver.ErrLost
}

// status returns the status of the lock.
func (k *lock) status(now driver.Instant) driver.Status {
	st := driver.Status{Name: k.name, Slots: k.slots}
	for _, l := range k.holders {
		st.Shared = l.req.Shared
		st.Holders = append(st.Holders, driver.Holding{
			Owner: l.req.Owner, Token: l.token, Holder: l.req.Holder,
			Held: max(1, now.Sub(l.since)), Left: l.end.Left(now), // 0 would mean that nobody knows
		})
	}
	for i, w := range k.queue {
		if i == 0 && len(k.holders) == 0 {
			st.Shared = w.req.Shared
		}
		st.Waiters = append(st.Waiters, driver.Waiting{
			Owner: w.req.Owner, Shared: w.req.Shared, Holder: w.req.Holder, Waited: now.Sub(w.since),
		})
	}
	return st
}
