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
	slots   int // of the request that began the use; 0 if the lock is not a semaphore
	holders []*lease
	queue   []*waiter
	timer   *time.Timer // fires when the next lease ends, while somebody waits
}

// A waiter is a request that is not granted yet.
type waiter struct {
	ctx     context.Context
	driver  *Driver
	req     driver.Request
	since   driver.Instant
	granted chan driver.Grant // capacity 1
	lease   *lease            // once it is granted
}

// request grants the request at once if possible. Otherwise it queues the waiter, or returns
// ErrHeld if the request does not wait.
func (w *waiter) request(k *lock, now driver.Instant) error {
	if err := k.checkKind(w.req); err != nil {
		return err
	}
	w.since = now
	if len(k.queue) == 0 && k.grant(w, now) {
		return nil
	}
	if w.req.NoWait {
		return driver.ErrHeld
	}
	k.queue = append(k.queue, w)
	w.req.NoteWait(nil)
	return nil
}

// withdraw removes the waiter from the queue, or the lease that it was granted in the meantime.
func (w *waiter) withdraw(k *lock, _ driver.Instant) {
	if w.lease != nil {
		k.remove(w.lease)
	}
	if i := slices.Index(k.queue, w); i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
	}
}

// lease returns the lease of an id, or nil if it has ended.
func (k *lock) lease(id string) *lease {
	for _, l := range k.holders {
		if l.req.Holder.Kind != driver.KindKept && l.req.ID == id {
			return l
		}
	}
	return nil
}

// admits reports whether the current holders leave room for req.
func (k *lock) admits(req driver.Request) bool {
	if req.Slots > 0 {
		for _, l := range k.holders {
			req.Slots = min(req.Slots, l.req.Slots)
		}
		return len(k.holders) < req.Slots
	}
	if req.Shared {
		return len(k.holders) == 0 || k.holders[0].req.Shared
	}
	return len(k.holders) == 0
}

// grant grants the lock to a waiter, unless the current holders leave no room.
func (k *lock) grant(w *waiter, now driver.Instant) bool {
	if !k.admits(w.req) {
		return false
	}
	g := k.store.tokens(w.req.TokenBlock())
	g.Start, g.TellsWanted = now, true
	w.lease = &lease{driver: w.driver, req: w.req, grant: g, end: now.Add(w.req.TTL)}
	k.holders = append(k.holders, w.lease)
	w.granted <- g
	return true
}

// tokens returns a grant of new tokens.
func (s *Store) tokens(n int) driver.Grant {
	first := driver.NextToken(s.lastToken, time.Now())
	s.lastToken = first + uint64(n) - 1
	return driver.Grant{Token: first, Tokens: n}
}

// serve grants the lock to the waiters whose turn it is, tells holders that others wait, and
// deletes a lock that nobody holds or waits for.
func (k *lock) serve(now driver.Instant) {
	for len(k.queue) > 0 {
		w := k.queue[0]
		gone := w.ctx.Err() != nil || w.driver.isClosed() // it withdraws by itself
		if !gone && !k.grant(w, now) {
			break
		}
		k.queue = k.queue[1:]
	}
	for _, l := range k.holders {
		if slices.ContainsFunc(k.queue, func(w *waiter) bool { return w.driver != l.driver }) {
			l.tellWanted()
		}
	}
	k.armTimer(now)
	if len(k.holders) == 0 && len(k.queue) == 0 && k.store.locks[k.name] == k {
		delete(k.store.locks, k.name)
	}
}

// expire removes the leases whose time is over.
func (k *lock) expire(now driver.Instant) {
	k.holders = slices.DeleteFunc(k.holders, func(l *lease) bool { return l.left(now) <= 0 })
}

// release removes a lease, or keeps it until its MinHold is over.
func (k *lock) release(l *lease, now driver.Instant) {
	until := l.grant.Start.Add(l.req.MinHold)
	if l.req.MinHold > 0 && until.SubMono(now) > 0 {
		l.req.Holder.Kind, l.end = driver.KindKept, until
		l.req.OnLost, l.req.OnWanted = nil, nil // its process is done with it
	} else {
		k.remove(l)
	}
}

// remove removes a lease, unless it has ended.
func (k *lock) remove(l *lease) {
	if i := slices.Index(k.holders, l); i >= 0 {
		k.holders = slices.Delete(k.holders, i, i+1)
	}
}

// armTimer arms the timer that grants the lock when a lease expires, as long as somebody waits.
// The timeout is bounded, because Go's timers stop while the machine is suspended, but the clock of
// the leases does not.
func (k *lock) armTimer(now driver.Instant) {
	if len(k.queue) == 0 || len(k.holders) == 0 {
		if k.timer != nil {
			k.timer.Stop()
		}
		return
	}
	sleep := time.Second
	for _, l := range k.holders {
		sleep = min(sleep, l.left(now))
	}
	if k.timer != nil {
		k.timer.Reset(sleep)
		return
	}
	k.timer = time.AfterFunc(sleep, func() { k.store.update(k.name, func(*lock, driver.Instant) {}) })
}

// checkKind returns an error if the name is in use as another kind of lock than requested.
func (k *lock) checkKind(req driver.Request) error {
	if len(k.holders)+len(k.queue) == 0 {
		k.slots = req.Slots
	}
	if (k.slots > 0) != (req.Slots > 0) {
		return driver.KindError(k.slots)
	}
	return nil
}
