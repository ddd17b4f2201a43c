// Package memlock keeps locks in the memory of one process. It is exact and strict: what the contract in package driver
// allows a store to leave open, memlock does not. Use it in tests, in examples, and where all contenders live in one
// process.
//
// # Keys
//
// A lock is an entry of a map under its name, as it is. Entries exist only while somebody holds or waits.
//
// # Waiting
//
// Waiters queue in order of arrival, whatever they ask for; a release, an expiry or a cancelled waiter grants to the
// next ones in the same moment. Nothing polls.
//
// # Liveness
//
// Each lease ends by itself after its TTL, on the clock of [driver.Instant].
//
// # Fencing
//
// Tokens follow [driver.NextToken], from one counter for all names of a [Store]. The store forgets with its process,
// so that across a restart tokens are ordered by the clock alone: [driver.FencingClock].
//
// # Failover
//
// There is none. Drivers of one Store stand for several processes, which is what tests need.
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

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
)

// A Store holds locks. The zero Store is empty and ready for use. It is safe for concurrent use.
type Store struct {
	mu    sync.Mutex
	locks map[string]*lock
	last  uint64 // the last token granted or reserved
	sweep int    // the number of locks at which expired ones are looked for
}

// Open returns a new driver on the store: what another process would have.
func (s *Store) Open() *Driver {
	return &Driver{store: s, closed: make(chan struct{})}
}

// A Driver takes leases in a Store.
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

		TellsLoss: true,
		Assumptions: []string{
			"all contenders live in this process",
			"tokens are ordered across restarts of the process if its wall clock did not go back meanwhile",
		},
		Faults: driver.Faults{
			Pause:     "the whole process stops, and all contenders with it; what its lease outlasted is lost when it goes on",
			Crash:     "all contenders die with the holder",
			Failover:  "there is none: the store is the process",
			Partition: "there is none",
			ClockJump: "no effect: leases count by a clock that nobody sets",
		},
	}
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l, w, err := d.tryOrQueue(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case l != nil:
		return l, nil
	}
	select {
	case l := <-w.granted:
		if ctx.Err() == nil {
			return l, nil
		}
		w.granted <- l // for withdraw
	case <-ctx.Done():
	case <-d.closed:
	}
	d.store.withdraw(w)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, driver.ErrClosed
}

// tryOrQueue grants at once if that is possible, and else puts a waiter into the queue, unless the request is NoWait.
func (d *Driver) tryOrQueue(ctx context.Context, req driver.Request) (*lease, *waiter, error) {
	s, now := d.store, req.Begun
	if now.IsZero() {
		now = driver.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.isClosed() {
		return nil, nil, driver.ErrClosed
	}
	k := s.lock(req.Name, now)
	defer s.settle(k, now)
	if err := k.checkKind(req); err != nil {
		return nil, nil, err
	}
	if h := k.heldBy(req); h != nil {
		return d.again(h, req, now), nil, nil
	}
	w := &waiter{ctx: ctx, driver: d, lock: k, req: req, since: now}
	if len(k.queue) == 0 && k.admits(req) {
		return s.grant(w, now), nil, nil
	}
	if req.NoWait {
		return nil, nil, driver.ErrHeld
	}
	w.granted = make(chan *lease, 1)
	k.queue = append(k.queue, w)
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
		l := one.(*lease)
		switch {
		case ctx.Err() != nil:
			answers[i].Err = context.Cause(ctx)
		case d.isClosed():
			answers[i].Err = driver.ErrClosed
		case l.state != held || l.end.Reached(now):
			answers[i].Err = driver.ErrLost
		default:
			l.end = now.Add(l.req.TTL)
			answers[i].Start = now
		}
	}
	return answers
}

// Close implements [driver.Driver]. Leases taken through d lapse at the end of their TTL.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.store.mu.Lock() // so that no grant to this driver is under way
		defer d.store.mu.Unlock()
		close(d.closed)
	})
	return nil
}

// A hold is what the store knows of a grant. It is guarded by the store's mutex.
type hold struct {
	driver   *Driver // of the process that has it
	lock     *lock
	req      driver.Request
	token    uint64
	tokens   int
	since    driver.Instant
	onLost   []func(error) // Request.OnLost of all requests that got this hold
	state    state
	end      driver.Instant
	wanted   chan struct{}
	isWanted bool // wanted is closed
}

// A lease implements [driver.Lease]. An owner that asks again gets another lease on the same hold, with a Start of its
// own.
type lease struct {
	*hold
	grant driver.Grant
}

// A state is where a hold stands between its holder and the store.
type state uint8

const (
	held     state = iota
	kept           // released by its holder, and kept by the store until its MinHold is over
	released       // by its holder
	lost           // by expiry or by force
)

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, now := l.lock.store, driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	l.lock.expire(now)
	if l.state == held {
		if until := l.since.Add(l.req.MinHold); l.req.MinHold > 0 && !until.Reached(now) {
			l.state, l.end = kept, until
		} else {
			l.lock.remove(l.hold, released)
		}
		s.settle(l.lock, now)
	}
	if l.state == lost {
		return driver.ErrLost
	}
	return nil
}

// withdraw takes back a request that is no longer waited for, granted in the meantime or not.
func (s *Store) withdraw(w *waiter) {
	now := driver.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case l := <-w.granted:
		w.lock.remove(l.hold, released)
	default:
		w.lock.unqueue(w)
	}
	s.settle(w.lock, now)
}

// lock returns the lock of the given name, without leases that have ended.
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

// sweepExpired forgets the locks whose holders never released them, whenever the map has doubled since it last did:
// holders that come and go under ever new names must not fill the memory.
func (s *Store) sweepExpired(now driver.Instant) {
	if len(s.locks) < s.sweep {
		return
	}
	for _, k := range s.locks {
		k.expire(now)
		s.settle(k, now)
	}
	s.sweep = max(1024, 2*len(s.locks))
}

// settle grants what has become possible and forgets a lock that nobody holds or waits for.
func (s *Store) settle(k *lock, now driver.Instant) {
	for len(k.queue) > 0 {
		w := k.queue[0]
		if w.ctx.Err() == nil && !w.driver.isClosed() { // else it withdraws by itself
			h := k.heldBy(w.req) // the same owner may have asked twice
			if h == nil && !k.admits(w.req) {
				break
			}
			if h != nil {
				w.granted <- w.driver.again(h, w.req, now)
			} else {
				w.granted <- s.grant(w, now)
			}
		}
		k.queue = k.queue[1:]
	}
	k.tellWanted()
	k.wakeAt(s, now)
	if len(k.holders) == 0 && len(k.queue) == 0 && s.locks[k.name] == k {
		delete(s.locks, k.name)
	}
}

// grant gives w's request its lease.
func (s *Store) grant(w *waiter, now driver.Instant) *lease {
	h := &hold{
		driver: w.driver, lock: w.lock, req: w.req, wanted: make(chan struct{}),
		token: driver.NextToken(s.last, time.Now()), tokens: max(w.req.Tokens, 1), since: now, end: now.Add(w.req.TTL),
	}
	h.tell(w.req)
	s.last = h.token + uint64(h.tokens) - 1
	w.lock.slots, w.lock.holders = w.req.Slots, append(w.lock.holders, h)
	return h.lease(now)
}

// again grants a hold to its owner once more, with a fresh TTL.
func (d *Driver) again(h *hold, req driver.Request, now driver.Instant) *lease {
	h.driver, h.req.TTL, h.end = d, req.TTL, now.Add(req.TTL)
	h.tell(req)
	return h.lease(now)
}

// tell notes who is to be told when the hold is broken.
func (h *hold) tell(req driver.Request) {
	if req.OnLost != nil {
		h.onLost = append(h.onLost, req.OnLost)
	}
}

func (h *hold) lease(start driver.Instant) *lease {
	return &lease{h, driver.Grant{Token: h.token, Tokens: h.tokens, Start: start, Wanted: h.wanted}}
}

// checkKind reports a request that does not fit the kind of lock that the name is in use as.
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
