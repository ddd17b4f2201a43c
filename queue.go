package snib

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A nameQueue is the queue of this process's goroutines for one name. Only the goroutine at its
// head sends requests to the store. The head is not in the list of waiters. Acquisitions that are
// Fair or have an Owner bypass the queue, and so do those that must not wait, if it has a head. A
// nameQueue exists as long as it has a head. Its fields are guarded by core.mu.
//
// An exclusive hold stays at the head until it ends. Then the lease, with its
// next token, is handed over to the first waiter, or the first waiter becomes the
// head and sends its own request.
type nameQueue struct {
	name        string
	waiters     waiterList
	freeList    *waiter // list of waiters to reuse; each got its hold here
	held        bool    // an exclusive hold of this process is at the head
	tokenDemand int     // tokens that the last lease used, doubled if it used all
	contended   bool    // the last run was bounded because of other waiters in the store

	// outage is why the store was unavailable at the last request of the head, or nil.
	outage error
}

// A waiter is a goroutine in a nameQueue.
type waiter struct {
	locker *Locker

	// ready has capacity 1. It receives a hold that was handed over, or nil when the waiter
	// becomes the head. Close closes it.
	ready chan *hold

	prev, next *waiter
}

// A waiterList is a list of waiters in order of arrival. It does not allocate.
type waiterList struct {
	first, last *waiter
	length      int
}

func (ws *waiterList) push(w *waiter) {
	ws.length++
	w.prev, w.next = ws.last, nil
	if ws.last == nil {
		ws.first = w
	} else {
		ws.last.next = w
	}
	ws.last = w
}

func (ws *waiterList) remove(w *waiter) {
	ws.length--
	if w.prev == nil {
		ws.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ws.last = w.prev
	} else {
		w.next.prev = w.prev
	}
}

// A localRun is a series of holds under one lease, handed over within the process.
type localRun struct {
	handOvers int // so far, or since contendedSince if that is set

	// contendedSince is when a waiter outside this queue was first noticed or, where the backend
	// can't tell, assumed. It is zero before.
	contendedSince driver.Instant
}

// While somebody outside the local queue waits for the lock, a run ends after this many
// hand-overs or this time, whichever comes first.
const (
	maxRunHandOvers = 128
	maxRunTime      = 5 * time.Millisecond
)

// maxTokenBlock bounds the fencing tokens that a lease reserves for a run. Each unused token puts
// the store's tokens ahead of its clock by a microsecond.
const maxTokenBlock = 4096

// waitInQueue waits until this goroutine becomes the head of the local queue, or gets a hold that
// another goroutine hands over. If the queue, hold and error are all nil, the caller sends its
// request without being the head: it must not wait here, and it is not known who holds the lock.
func (c *core) waitInQueue(ctx context.Context, l *Locker, name string, noWait bool) (*nameQueue, *hold, error) {
	c.mu.Lock()
	q := c.queues[name]
	switch {
	case c.isClosed:
		c.mu.Unlock()
		return nil, nil, ErrClosed
	case q == nil:
		q = &nameQueue{name: name}
		c.queues[name] = q
		c.mu.Unlock()
		return q, nil, nil
	case noWait && q.held:
		c.mu.Unlock()
		return nil, nil, ErrHeld
	case noWait:
		c.mu.Unlock()
		return nil, nil, nil
	}
	w := q.newWaiter(l)
	q.waiters.push(w)
	c.mu.Unlock()

	var err error
	select {
	case h, open := <-w.ready:
		if !open {
			return nil, nil, ErrClosed
		}
		if err = c.accept(ctx, q, w, h); err == nil {
			return q, h, nil
		}
		w.ready <- h // does not block: nobody else sends
	case <-ctx.Done():
		err = c.withOutage(q, context.Cause(ctx))
	}
	c.abandonWait(q, w)
	return nil, nil, err
}

// withOutage adds to err, the error of a wait that has ended, why the
// store is unavailable, if it is.
func (c *core) withOutage(q *nameQueue, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.outage == nil {
		return err
	}
	return fmt.Errorf("%w: %w", q.outage, err)
}

// setOutage records for the waiters in q whether the store is unavailable to the head.
func (c *core) setOutage(q *nameQueue, err error) {
	if q == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q.outage = err
}

// newWaiter returns a waiter for l. It is called with core.mu held.
func (q *nameQueue) newWaiter(l *Locker) *waiter {
	w := q.freeList
	if w == nil {
		return &waiter{locker: l, ready: make(chan *hold, 1)}
	}
	q.freeList, w.locker = w.next, l
	return w
}

// accept accepts what w got: a hold, or nil if it is the head now. It returns an error if ctx is
// done, or if the hold is already over.
func (c *core) accept(ctx context.Context, q *nameQueue, w *waiter, h *hold) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if h == nil {
		return nil
	}
	h.awaitPrevious()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.endCause(); err != nil {
		return err
	}
	h.unaccepted = false
	w.next, q.freeList = q.freeList, w // nobody else refers to w any more
	return nil
}

// abandonWait removes w, which no longer waits, from the queue. If w became the head or got a
// hold in the meantime, abandonWait passes that on. After Close it finds w at the head of an
// empty queue, and deletes the queue.
func (c *core) abandonWait(q *nameQueue, w *waiter) {
	c.mu.Lock()
	select {
	case h := <-w.ready:
		if h == nil {
			c.advanceLocked(q)
		}
		c.mu.Unlock()
		if h != nil {
			h.awaitPrevious()
			_ = h.leave() // releases the lease or hands it over
		}
	default:
		q.waiters.remove(w)
		c.mu.Unlock()
	}
}

// waiterCount returns the number of waiters; q may be nil. It is called with core.mu held.
func (q *nameQueue) waiterCount() int {
	if q == nil {
		return 0
	}
	return q.waiters.length
}

// closeWaiters ends the wait of all waiters. It is called with core.mu held.
func (q *nameQueue) closeWaiters() {
	for w := q.waiters.first; w != nil; w = w.next {
		close(w.ready)
	}
	q.waiters = waiterList{}
}

// advance makes the first waiter the head of q.
func (c *core) advance(q *nameQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked(q)
}

// advanceLocked makes the first waiter the head of q, or deletes q if there is none.
// It is called with core.mu held.
func (c *core) advanceLocked(q *nameQueue) {
	q.held = false
	w := q.waiters.first
	if w == nil {
		delete(c.queues, q.name)
		return
	}
	q.waiters.remove(w)
	w.ready <- nil
}

// confirmInterval is how long ago the store may have confirmed a lease that is handed over within
// this process. If the store ended the lease in the meantime, and another process had the lock,
// then for this long the next local hold gets a smaller token than the other process had. A
// resource that checks tokens refuses it.
const confirmInterval = 10 * time.Millisecond

// confirm reports whether the store has confirmed the lease of h within confirmInterval. If h is
// about to be released and handed over, and the last confirmation is older, confirm renews the
// lease. It is called with core.mu held, and unlocks it during the call of the driver.
func (c *core) confirm(h *hold) bool {
	le, now := h.lease, driver.Now()
	switch {
	case h.lockCount > 1 || h.cause != nil || h.deadline().Reached(now) || le.successor(now) == nil:
		return false
	case now.Sub(le.confirmedAt) < confirmInterval:
		return true
	case le.renewing: // the answer may take long: the next hold sends its own request
		return false
	}
	le.renewing = true
	c.schedule(le)
	before, timeout := le.confirmedAt, min(h.locker.conf.releaseTimeout, h.deadline().Left(now)/2)
	c.mu.Unlock()
	c.renewAll([]*lease{le}, []driver.Lease{le.granted}, timeout)
	c.mu.Lock()
	return h.cause == nil && le.confirmedAt != before
}

// successor returns the local waiter to which the lease may be handed over, or nil.
// It is called with core.mu held.
func (le *lease) successor(now driver.Instant) *waiter {
	q := le.queue
	if q == nil || q.waiters.first == nil || !le.canHandOver(now) {
		return nil
	}
	if w := q.waiters.first; w.locker.conf.canTakeOver(&le.hold.locker.conf) {
		return w
	}
	return nil
}

// handOver hands a lease whose hold has just been released to the first waiter, if that is
// allowed. It returns the new hold, or nil. If contexts of the old hold have yet to end, the new
// hold waits until the caller closes its prevDone. It is called with core.mu held.
func (c *core) handOver(le *lease, now driver.Instant, contextsPending bool) *hold {
	w := le.successor(now)
	if w == nil {
		return nil
	}
	q := le.queue
	q.waiters.remove(w)
	le.run.handOvers++
	h := le.newHold(w.locker, le.nextToken, now)
	h.unaccepted = true
	le.nextToken++
	c.schedule(le)
	if contextsPending {
		h.prevDone = make(chan struct{})
	}
	w.ready <- h
	return h
}

// allowsHandOver reports whether the lease of a hold with these options may be handed over within
// the process. It may not where the store has to know of each hold.
func (c *config) allowsHandOver() bool {
	return c.exclusive() && !c.fair && !c.inheritable && c.minHold == 0 && c.owner == ""
}

// canTakeOver reports whether a hold with options c may take over the
// lease of a hold with options prev.
func (c *config) canTakeOver(prev *config) bool {
	return c.allowsHandOver() && c.ttl == prev.ttl && c.lockDelay == prev.lockDelay && c.label == prev.label
}

// canHandOver reports whether the lease may serve one more hold.
func (le *lease) canHandOver(now driver.Instant) bool {
	if le.nextToken >= le.endToken || le.deadline.Left(now) < le.ttl/4 || !le.hold.locker.conf.allowsHandOver() {
		return false
	}
	select {
	case <-le.wanted:
	default:
		if le.wanted != nil && le.hold.locker.core.storeWaiters[le.name] == 0 {
			return true
		}
	}
	if le.run.contendedSince.IsZero() {
		le.run.contendedSince, le.run.handOvers = now, 0
	}
	return le.run.handOvers < maxRunHandOvers && now.Sub(le.run.contendedSince) < maxRunTime
}

// tokenBlockSize returns the number of tokens that the next lease, for l, should reserve: one for
// each waiter that could take the lease over, and at least twice as many as the last lease used
// if it used them all, so that a long run costs the store few requests.
func (q *nameQueue) tokenBlockSize(l *Locker) int {
	limit, n := maxTokenBlock, 1
	if q.contended { // the next run will probably be bounded, too
		limit = maxRunHandOvers + 1
	}
	for w := q.waiters.first; w != nil && n < limit; w = w.next {
		if !w.locker.conf.canTakeOver(&l.conf) {
			return n
		}
		n++
	}
	return min(max(n, q.tokenDemand), limit)
}

// recordUse records how a lease that goes back to the store was used; q may be nil.
func (q *nameQueue) recordUse(le *lease) {
	if q == nil {
		return
	}
	first := le.granted.Grant().Token
	q.contended = !le.run.contendedSince.IsZero()
	q.tokenDemand = int(le.nextToken - first)
	if le.nextToken >= le.endToken {
		q.tokenDemand *= 2
	}
}
