package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

// A lock is a name that somebody holds or waits for. It is guarded by the store's mutex.
type lock struct {
	store   *Store
	name    string
	slots   int      // size of the semaphore, or 0 if it is no semaphore
	holders []*lease // in state held or kept
	queue   []*waiter
	timer   *time.Timer // fires when the next lease ends, while somebody waits
}

// A waiter is a request in a queue.
type waiter struct {
	ctx     context.Context
	driver  *Driver
	lock    *lock
	req     driver.Request
	since   driver.Instant
	granted chan *handle // capacity 1
}

// admits reports whether the current holders leave room for req.
func (k *lock) admits(req driver.Request) bool {
	if req.Slots > 0 {
		return len(k.holders) < req.Slots
	}
	if req.Shared {
		return len(k.holders) == 0 || k.holders[0].req.Shared
	}
	return len(k.holders) == 0
}

// leaseOf returns the lease that the owner of req already has, on the
// same side of the lock, or nil.
func (k *lock) leaseOf(req driver.Request) *lease {
	for _, l := range k.holders {
		if l.state == held && l.req.Owner == req.Owner && l.req.Shared == req.Shared {
			return l
		}
	}
	return nil
}

// expire ends the leases whose time is over.
func (k *lock) expire(now driver.Instant) {
	for i := len(k.holders) - 1; i >= 0; i-- {
		if l := k.holders[i]; l.end.Reached(now) {
			k.remove(l, lost)
		}
	}
}

// remove ends l in the given state, unless it has already ended. A lease that its holder has
// released becomes released, never lost.
func (k *lock) remove(l *lease, to state) {
	if i := slices.Index(k.holders, l); i >= 0 {
		k.holders = slices.Delete(k.holders, i, i+1)
		if l.state == kept {
			to = released
		}
		l.state = to
	}
}

// removeWaiter removes w from the queue.
func (k *lock) removeWaiter(w *waiter) {
	if i := slices.Index(k.queue, w); i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
	}
}

// signalWanted tells the holder of each lease for which another driver has a waiter.
func (k *lock) signalWanted() {
	for _, l := range k.holders {
		other := func(w *waiter) bool { return w.driver != l.driver }
		if !l.isWanted && slices.ContainsFunc(k.queue, other) {
			l.isWanted = true
			for _, r := range l.listeners {
				if r.onWanted != nil {
					r.onWanted()
				}
			}
		}
	}
}

// armTimer arms the timer that grants the lock when a lease expires, as long as somebody waits.
// The timeout is bounded, because Go's timers stop while the machine is suspended, but the clock of
// the leases does not.
func (k *lock) armTimer(s *Store, now driver.Instant) {
	if len(k.queue) == 0 || len(k.holders) == 0 {
		if k.timer != nil {
			k.timer.Stop()
		}
		return
	}
	sleep := time.Second
	for _, l := range k.holders {
		sleep = min(sleep, l.end.Left(now))
	}
	if k.timer != nil {
		k.timer.Reset(sleep)
		return
	}
	k.timer = time.AfterFunc(sleep, func() {
		now := driver.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		k.expire(now)
		s.grantWaiters(k, now)
	})
}
