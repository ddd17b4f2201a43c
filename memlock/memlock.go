// Package memlock keeps locks in the memory of one process. It is exact and strict: where the
// contract in package driver leaves a store a choice, memlock does not use it. Use it in tests,
// in examples, and where all contenders live in one process. Several drivers on one [Store] stand
// for several processes. No lease survives the process; docs/backends/memlock.md has the details.
package memlock

import (
	"context"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

var _ driver.Driver = (*Driver)(nil)

// A Store holds locks. The zero Store is empty and ready for use. It is safe for concurrent use.
type Store struct {
	mu        sync.Mutex
	locks     map[string]*lock
	lastToken uint64 // the greatest token granted or reserved
	sweepAt   int    // number of locks at which expired ones are removed
}

// Open returns a new driver on the store. It stands for another process.
func (s *Store) Open() *Driver {
	return &Driver{store: s, closed: make(chan struct{})}
}

// A Driver acquires leases in a Store.
type Driver struct {
	store *Store

	closing sync.Once
	closed  chan struct{} // closed by Close
}

// New returns a driver on a store of its own.
func New() *Driver { return new(Store).Open() }

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Backend: "memory",
		Tenure:  driver.TenureLease,
		Fencing: driver.FencingClock,
		Fair:    true,
		Shared:  true,
		Slots:   true,

		TellsLoss: true, TellsWanted: true,
		Assumptions: []string{
			"all contenders live in this process",
			"tokens are ordered across restarts of the process if its wall clock did not go back meanwhile",
		},
	}
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	w := &waiter{ctx: ctx, driver: d, req: req, granted: make(chan driver.Grant, 1)}
	if err := d.update(ctx, req.Name, w.request); err != nil {
		return nil, err
	}
	select {
	case g := <-w.granted:
		if ctx.Err() == nil {
			return &handle{d: d, name: req.Name, id: req.ID, ttl: req.TTL, grant: g}, nil
		}
	case <-ctx.Done():
	case <-d.closed:
	}
	d.store.update(req.Name, w.withdraw)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, driver.ErrClosed
}

// Lease returns the lease with the given id, which another driver may have acquired.
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	return &handle{d: d, name: name, id: id, ttl: ttl}
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	for i, one := range due {
		h := one.(*handle)
		answers[i].Err = d.update(ctx, h.name, func(k *lock, now driver.Instant) error {
			l := k.lease(h.id)
			if l == nil {
				return driver.ErrLost
			}
			l.extend(now.Add(h.ttl))
			answers[i].Start = now
			return nil
		})
	}
	return answers
}

// Close implements [driver.Driver]. Leases acquired through d lapse at the end of their TTL.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.store.mu.Lock() // no grant to this driver may be in progress
		defer d.store.mu.Unlock()
		close(d.closed)
	})
	return nil
}

func (d *Driver) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

// update is Store.update, unless ctx is done or the driver is closed.
func (d *Driver) update(ctx context.Context, name string, change func(*lock, driver.Instant) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.store.update(name, func(k *lock, now driver.Instant) {
		if err = driver.ErrClosed; !d.isClosed() {
			err = change(k, now)
		}
	})
	return err
}

// update calls change with a lock, from which expired leases are removed, and then grants the lock
// to the waiters whose turn it is. A lock exists while somebody holds it or waits for it.
func (s *Store) update(name string, change func(*lock, driver.Instant)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := driver.Now()
	k := s.locks[name]
	if k == nil {
		s.sweep(now)
		k = &lock{store: s, name: name}
		if s.locks == nil {
			s.locks = make(map[string]*lock)
		}
		s.locks[name] = k
	}
	k.expire(now)
	change(k, now)
	k.serve(now)
}

// sweep removes locks whose leases have all expired, whenever the map has doubled since the last
// sweep. Otherwise holders that never release, each under a new name, would fill the memory.
func (s *Store) sweep(now driver.Instant) {
	if len(s.locks) < s.sweepAt {
		return
	}
	for _, k := range s.locks {
		k.expire(now)
		k.serve(now)
	}
	s.sweepAt = max(1024, 2*len(s.locks))
}
