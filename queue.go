package snib

// Stage 2, enqueue: the goroutines of this process that want one name queue up, and the one at the
// head goes on to the store.

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver/driverkit"
)

// A place is where an acquisition is while it sends its request: at the head of a nameQueue or
// outside of it.
type place struct {
	name    string
	queue   *nameQueue // nil outside of it
	counted bool       // in core.storeWaiters
}

// enqueue waits until this goroutine may send a request to the store, or gets a hold that another
// goroutine hands over. If it returns neither a hold nor an error, the caller must call dequeue
// with the place. If it returns both, the hold was handed over after the wait had ended, and the
// caller must decline it.
func (l *Locker) enqueue(ctx context.Context, name string, noWait bool) (place, *hold, error) {
	c := l.core
	if l.conf.fair || l.conf.detached {
		if !noWait {
			c.countStoreWaiter(name, 1)
		}
		return place{name: name, counted: !noWait}, nil, nil
	}
	return c.waitInQueue(ctx, l, name, noWait)
}

// dequeue ends the request of the acquisition at p. If staysHead is true, the acquisition stays at
// the head of the queue until its hold ends.
func (c *core) dequeue(p place, staysHead bool) {
	if p.queue != nil && !staysHead {
		c.advance(p.queue)
	}
	if p.counted {
		c.countStoreWaiter(p.name, -1)
	}
}

// waitInQueue waits until this goroutine becomes the head of the local queue, or gets a hold that
// another goroutine hands over. If the place is outside of the queue, and there is neither a hold
// nor an error, the caller sends its request without being the head: it must not wait for its turn,
// and no goroutine of this process is known to hold the lock.
func (c *core) waitInQueue(ctx context.Context, l *Locker, name string, noWait bool) (place, *hold, error) {
	c.mu.Lock()
	q := c.queues[name]
	switch {
	case c.isClosed:
		c.mu.Unlock()
		return place{}, nil, ErrClosed
	case q == nil:
		q = &nameQueue{name: name}
		c.queues[name] = q
		c.mu.Unlock()
		return place{name: name, queue: q}, nil, nil
	case noWait && q.held != nil:
		c.mu.Unlock()
		return place{}, nil, ErrHeld
	case noWait:
		c.mu.Unlock()
		return place{name: name}, nil, nil
	}
	w := &waiter{locker: l, began: time.Now(), ready: make(chan *hold, 1)}
	q.waiters.push(w)
	c.mu.Unlock()

	var err error
	select {
	case h, open := <-w.ready:
		if !open {
			return place{}, nil, ErrClosed
		}
		if err = c.accept(ctx, q, w, h); err == nil {
			return place{name: name, queue: q}, h, nil
		}
		w.ready <- h // does not block: nobody else sends
	case <-ctx.Done():
		err = c.endOfWait(q, w, context.Cause(ctx))
	}
	return place{}, c.abandonWait(q, w), err
}

// accept accepts what w got: a hold, or nil if it is the head now. It returns an error if ctx is
// done, or if the hold is already over.
func (c *core) accept(ctx context.Context, q *nameQueue, w *waiter, h *hold) error {
	if ctx.Err() != nil {
		return c.endOfWait(q, w, context.Cause(ctx))
	}
	if h == nil {
		return nil
	}
	awaitPrevious(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.endCause(); err != nil {
		return err
	}
	h.unaccepted = false
	return nil
}

// awaitPrevious waits until the contexts of the previous hold of the lease have ended.
func awaitPrevious(h *hold) {
	if h.prevDone != nil {
		<-h.prevDone // not for long: no callback runs before it is closed
	}
}

// abandonWait removes w, which no longer waits, from the queue. If w became the head in the
// meantime, abandonWait makes the next waiter the head. If w got a hold, abandonWait returns it.
// After Close it finds w at the head of an empty queue, and deletes the queue.
func (c *core) abandonWait(q *nameQueue, w *waiter) *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case h := <-w.ready:
		if h == nil {
			c.advanceLocked(q)
		}
		return h
	default:
		q.waiters.remove(w)
		return nil
	}
}

// endOfWait returns the error of w, whose wait in q has ended with cause. It matches
// ErrUnavailable, unless the lock was held, as far as is known, while w waited. If this process
// holds the lock, the error says so, because w may wait for its own goroutine.
func (c *core) endOfWait(q *nameQueue, w *waiter, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case q.outageErr != nil:
		return fmt.Errorf("%w: %w", q.outageErr, cause)
	case q.held != nil || q.heldInStore || !q.lastHeld.Before(w.began):
		if q.held != nil {
			cause = fmt.Errorf("%w; this process holds it%s", cause, q.held.hold.acquiredBy())
		}
		return cause
	}
	return fmt.Errorf("%w: no answer to another goroutine of this process: %w", ErrUnavailable, cause)
}

// noteAnswer records for those who wait in q what the head has learned of the store: whether
// somebody holds the lock, or why the store is unavailable. q may be nil.
func (c *core) noteAnswer(q *nameQueue, held bool, outage error) {
	if q == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q.heldInStore, q.outageErr = held, outage
}

// countStoreWaiter adds n to the acquisitions that wait in the store, outside the local queue.
func (c *core) countStoreWaiter(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storeWaiters[name] += n; c.storeWaiters[name] == 0 {
		delete(c.storeWaiters, name)
	}
}

// advance makes the first waiter the head of q, or deletes q if there is none.
func (c *core) advance(q *nameQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked(q)
}

// advanceLocked makes the first waiter the head of q, or deletes q if there is none.
func (c *core) advanceLocked(q *nameQueue) {
	wasHeld := q.held != nil || q.heldInStore
	q.held, q.heldInStore = nil, false
	w := q.waiters.first
	if w == nil {
		delete(c.queues, q.name)
		return
	}
	if wasHeld {
		q.lastHeld = time.Now()
	}
	q.waiters.remove(w)
	q.outage.CountFrom(w.began) // those behind w began later still
	w.ready <- nil
}

// A nameQueue is the queue of this process's goroutines for one name. Only the goroutine at its
// head sends requests to the store. The head is not in the list of waiters. A nameQueue exists as
// long as it has a head. Acquisitions that are Fair or Detached bypass the
// queue. So do acquisitions that must not wait, if the queue exists.
//
// An exclusive hold stays at the head until it ends. Then the lease, with its
// next token, is handed over to the first waiter, or the first waiter becomes the
// head and sends its own request.
type nameQueue struct {
	name        string
	waiters     waiterList
	held        *lease // of the exclusive hold of this process at the head, or nil
	tokenDemand int    // tokens that the last lease used, doubled if it used all
	contended   bool   // the last run was bounded because of other waiters in the store

	// outage is the current outage, as the heads have seen it: each continues that of the one
	// before. It counts from the time at which the head began to wait, if that is later. Only the
	// head uses it, without mu, and advanceLocked between two heads.
	outage driverkit.Outage

	// While no hold of this process is at the head, these say who may hold the lock.
	heldInStore bool      // the store has answered the head that somebody holds the lock
	lastHeld    time.Time // when the lock was last known to be held, if somebody waited then

	// outageErr is why the store was unavailable when a head last heard of it, or nil. It is changed
	// for the head only, so the head reads it without mu.
	outageErr error
}

// A waiter is a goroutine in a nameQueue.
type waiter struct {
	locker *Locker
	began  time.Time // when it began to wait here

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

// waiterCount returns the number of waiters; q may be nil.
func (q *nameQueue) waiterCount() int {
	if q == nil {
		return 0
	}
	return q.waiters.length
}

// closeWaiters ends the wait of all waiters.
func (q *nameQueue) closeWaiters() {
	for w := q.waiters.first; w != nil; w = w.next {
		close(w.ready)
	}
	q.waiters = waiterList{}
}
