// Package memlock keeps locks in the memory of one process. It is exact and strict: where the
// contract in package driver leaves a store a choice, memlock does not use it. Use it in tests,
// in examples, and where all contenders live in one process.
//
// # Keys
//
// A lock is an entry in a map, under its unchanged name. An entry exists only while somebody
// holds the lock or waits for it.
//
// # Waiting
//
// Waiters queue in order of arrival, whatever kind of lock they request. A release, an expiry or
// a cancelled waiter grants the lock to the next waiters at the same moment. Nothing polls.
//
// # Liveness
//
// Each lease ends by itself after its TTL, on the clock of [driver.Instant].
//
// # Fencing
//
// Tokens follow [driver.NextToken], from one counter for all names of a [Store]. The
// store is lost with its process, so across a restart tokens are ordered by the clock
// alone: [driver.FencingClock].
//
// # Failover
//
// There is none: no lease survives the process, not even a detached one. Several drivers on one
// Store stand for several processes, which is what tests need.
//
// # Options
//
// There are none.
package memlock

import (
	"context"
	"fmt"
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
		Backend:  "memory",
		Tenure:   driver.TenureLease,
		Fencing:  driver.FencingClock,
		Fairness: driver.FairAlways,
		Shared:   true,
		Slots:    true,

		TellsLoss: true, TellsWanted: true,
		Assumptions: []string{
			"all contenders live in this process",
			"tokens are ordered across restarts of the process if its wall clock did not go back meanwhile",
		},
	}
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	h, w, err := d.tryOrQueue(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case h != nil:
		return h, nil
	}
	select {
	case h := <-w.granted:
		if ctx.Err() == nil {
			return h, nil
		}
		w.granted <- h // for withdraw
	case <-ctx.Done():
	case <-d.closed:
	}
	d.store.withdraw(w)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, driver.ErrClosed
}

// tryOrQueue grants the request at once if possible. Otherwise it adds a waiter to the queue, or
// returns ErrHeld if the request is NoWait.
func (d *Driver) tryOrQueue(ctx context.Context, req driver.Request) (*handle, *waiter, error) {
	s, now := d.store, driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.isClosed() {
		return nil, nil, driver.ErrClosed
	}
	k := s.lock(req.Name, now)
	defer s.grantWaiters(k, now)
	if err := k.checkKind(req); err != nil {
		return nil, nil, err
	}
	if l := k.leaseOf(req); l != nil {
		return d.regrant(l, req, now), nil, nil
	}
	if len(k.queue) == 0 && k.admits(req) {
		return d.grant(k, req, now), nil, nil
	}
	if req.NoWait {
		return nil, nil, driver.ErrHeld
	}
	w := &waiter{ctx: ctx, driver: d, lock: k, req: req, since: now, granted: make(chan *handle, 1)}
	k.queue = append(k.queue, w)
	req.NoteWait(nil)
	return nil, w, nil
}

func (d *Driver) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	s, now := d.store, driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := make([]driver.Renewal, len(due))
	for i, one := range due {
		h := one.(*handle)
		switch {
		case ctx.Err() != nil:
			answers[i].Err = context.Cause(ctx)
		case d.isClosed():
			answers[i].Err = driver.ErrClosed
		case h.state != held || h.end.Reached(now):
			answers[i].Err = driver.ErrLost
		default:
			h.end = now.Add(h.req.TTL)
			answers[i].Start = now
		}
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

// A lease is the store's record of a grant. It is guarded by the store's mutex.
type lease struct {
	driver      *Driver // the driver that it was granted to last
	lock        *lock
	req         driver.Request
	token       uint64
	tokens      int
	since       driver.Instant
	state       state
	end         driver.Instant
	listeners   []listener // of all requests that got this lease
	isWanted    bool       // onWanted was called
	firstHandle handle     // has the memory for the first handle: most leases have only one
}

// A listener has the callbacks of a request, each of which may be nil.
type listener struct {
	onLost   func(error)
	onWanted func()
}

// A handle implements [driver.Lease]. An owner that acquires again gets another handle for the
// same lease, with a Start of its own.
type handle struct {
	*lease
	grant driver.Grant
}

// A state is the state of a lease.
type state uint8

const (
	held     state = iota
	kept           // released by its holder, but taken until its MinHold is over
	released       // released by its holder
	lost           // ended by expiry or by force
)

// Grant implements [driver.Lease].
func (h *handle) Grant() driver.Grant { return h.grant }

// Release implements [driver.Lease].
func (h *handle) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, now := h.lock.store, driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.lock.expire(now)
	if h.state == held {
		if until := h.since.Add(h.req.MinHold); h.req.MinHold > 0 && !until.Reached(now) {
			h.state, h.end = kept, until
		} else {
			h.lock.remove(h.lease, released)
		}
		s.grantWaiters(h.lock, now)
	}
	if h.state == lost {
		return driver.ErrLost
	}
	return nil
}

// SetLabel implements [driver.Lease].
func (h *handle) SetLabel(ctx context.Context, label string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, now := h.lock.store, driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.lock.expire(now)
	defer s.grantWaiters(h.lock, now)
	if h.state != held {
		return driver.ErrLost
	}
	h.req.Holder.Label = label
	return nil
}

// withdraw takes back a request that nobody waits for any more. If it was granted in the
// meantime, withdraw releases its lease.
func (s *Store) withdraw(w *waiter) {
	now := driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case h := <-w.granted:
		w.lock.remove(h.lease, released)
	default:
		w.lock.removeWaiter(w)
	}
	s.grantWaiters(w.lock, now)
}

// lock returns the lock of the given name, after removing expired leases from it. It
// creates the lock if there is none.
func (s *Store) lock(name string, now driver.Instant) *lock {
	if k := s.locks[name]; k != nil {
		k.expire(now)
		return k
	}
	s.sweepExpired(now)
	k := &lock{store: s, name: name}
	if s.locks == nil {
		s.locks = make(map[string]*lock)
	}
	s.locks[name] = k
	return k
}

// sweepExpired removes locks whose leases have all expired, whenever the map has
// doubled since the last sweep. Otherwise holders that never release, each under a
// new name, would fill the memory.
func (s *Store) sweepExpired(now driver.Instant) {
	if len(s.locks) < s.sweepAt {
		return
	}
	for _, k := range s.locks {
		k.expire(now)
		s.grantWaiters(k, now)
	}
	s.sweepAt = max(1024, 2*len(s.locks))
}

// grantWaiters grants the lock to the waiters whose turn it is, and deletes a lock
// that nobody holds or waits for.
func (s *Store) grantWaiters(k *lock, now driver.Instant) {
	for len(k.queue) > 0 {
		w := k.queue[0]
		if w.ctx.Err() == nil && !w.driver.isClosed() { // otherwise the waiter withdraws by itself
			l := k.leaseOf(w.req) // the same owner may wait twice
			if l == nil && !k.admits(w.req) {
				break
			}
			if l != nil {
				w.granted <- w.driver.regrant(l, w.req, now)
			} else {
				w.granted <- w.driver.grant(k, w.req, now)
			}
		}
		k.queue = k.queue[1:]
	}
	k.signalWanted()
	k.armTimer(s, now)
	if len(k.holders) == 0 && len(k.queue) == 0 && s.locks[k.name] == k {
		delete(s.locks, k.name)
	}
}

// maxTokens is how many tokens a lease may reserve. It keeps the counter, which all names share, near
// the clock and far from its end.
const maxTokens = 4096

// grant grants a request a new lease.
func (d *Driver) grant(k *lock, req driver.Request, now driver.Instant) *handle {
	s := d.store
	l := &lease{
		driver: d, lock: k, req: req,
		token: driver.NextToken(s.lastToken, time.Now()), tokens: min(max(req.Tokens, 1), maxTokens), since: now, end: now.Add(req.TTL),
	}
	l.addListener(req)
	s.lastToken = l.token + uint64(l.tokens) - 1
	k.slots, k.holders = req.Slots, append(k.holders, l)
	return l.newHandle(now)
}

// regrant grants a lease to its owner again, with a fresh TTL.
func (d *Driver) regrant(l *lease, req driver.Request, now driver.Instant) *handle {
	l.driver, l.req.TTL, l.end = d, req.TTL, now.Add(req.TTL)
	l.addListener(req)
	return l.newHandle(now)
}

// addListener adds the request's callbacks to those of the lease.
func (l *lease) addListener(req driver.Request) {
	l.listeners = append(l.listeners, listener{req.OnLost, req.OnWanted})
	if l.isWanted && req.OnWanted != nil {
		req.OnWanted()
	}
}

// newHandle returns a handle for a grant at start.
func (l *lease) newHandle(start driver.Instant) *handle {
	h := &l.firstHandle
	if h.lease != nil {
		h = new(handle)
	}
	*h = handle{l, driver.Grant{Token: l.token, Tokens: l.tokens, Start: start, TellsWanted: true}}
	return h
}

// checkKind returns an error if the name is in use as another kind of lock than requested.
func (k *lock) checkKind(req driver.Request) error {
	if len(k.holders)+len(k.queue) == 0 || k.slots == req.Slots {
		k.slots = req.Slots
		return nil
	}
	return fmt.Errorf("%w: it is in use as %s, not as %s", driver.ErrKind, kindName(k.slots), kindName(req.Slots))
}

func kindName(slots int) string {
	if slots == 0 {
		return "a lock"
	}
	return fmt.Sprintf("a semaphore of %d", slots)
}
