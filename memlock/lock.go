package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

// A lock is one name that somebody holds or waits for. It is guarded by the store's mutex.
type lock struct {
	store   *Store
	name    string
	slots   int     // size of the semaphore, 0 if it is none
	holders []*hold // held or kept
	queue   []*waiter
	timer   *time.Timer // while somebody waits: set to the end of the lease that ends first
}

// A waiter is a request in a queue.
type waiter struct {
	ctx     context.Context
	driver  *Driver
	lock    *lock
	req     driver.Request
	since   driver.Instant
	granted chan *lease // of one; nil if the request never queued
}

// admits reports whether the present holders leave room for req.
func (k *lock) admits(req driver.Request) bool {
	if req.Slots > 0 {
		return len(k.holders) < req.Slots
	}
	if req.Shared {
		return len(k.holders) == 0 || k.holders[0].req.Shared
	}
	return len(k.holders) == 0
}

// heldBy returns the hold that the owner of a request has already, on the same side of the lock, or nil.
func (k *lock) heldBy(req driver.Request) *hold {
	for _, h := range k.holders {
		if h.state == held && h.req.Owner == req.Owner && h.req.Shared == req.Shared {
			return h
		}
	}
	return nil
}

// expire ends the leases whose time is over.
func (k *lock) expire(now driver.Instant) {
	for i := len(k.holders) - 1; i >= 0; i-- {
		if h := k.holders[i]; h.end.Reached(now) {
			k.remove(h, lost)
		}
	}
}

// remove ends h, if that has not been done before. What its holder has released is not lost any more.
func (k *lock) remove(h *hold, to state) {
	if i := slices.Index(k.holders, h); i >= 0 {
		k.holders = slices.Delete(k.holders, i, i+1)
		if h.state == kept {
			to = released
		}
		h.state = to
	}
}

// unqueue takes w out of the queue.
func (k *lock) unqueue(w *waiter) {
	if i := slices.Index(k.queue, w); i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
	}
}

// tellWanted tells each holder when a driver that is not its own has a waiter.
func (k *lock) tellWanted() {
	for _, h := range k.holders {
		other := func(w *waiter) bool { return w.driver != h.driver }
		if !h.isWanted && slices.ContainsFunc(k.queue, other) {
			h.isWanted = true
			close(h.wanted)
		}
	}
}

// wakeAt arms the timer that grants on expiry, as long as somebody waits for one. The nap is bounded, because timers
// stand still while the machine sleeps and the leases' clock does not.
func (k *lock) wakeAt(s *Store, now driver.Instant) {
	if len(k.queue) == 0 || len(k.holders) == 0 {
		if k.timer != nil {
			k.timer.Stop()
		}
		return
	}
	sleep := time.Second
	for _, h := range k.holders {
		sleep = min(sleep, h.end.Left(now))
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
		s.settle(k, now)
	})
}
