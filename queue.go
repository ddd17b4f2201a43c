package snib

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A gate is where the goroutines of this process queue for one name, so that at most one of them asks the store. It
// exists as long as somebody has the turn. Its fields are guarded by core.mu.
//
// Who has the turn asks the store. An exclusive hold keeps the turn until it ends; then the lease, with its next token,
// goes straight to the first in the queue, or that one gets the turn to ask for itself.
type gate struct {
	name   string
	queue  queue
	spare  *waiter // a list: they got a hold here, and may be used again
	held   bool    // an exclusive hold of this process has the turn
	used   int     // tokens that the last lease here could have used
	wanted bool    // its run was cut short for somebody else
	passed bool    // the turn went from one to the next: who has it has waited

	outage error // why the store was unavailable when the goroutine that has the turn last asked it; nil if it was not
}

// A waiter is a goroutine in a gate's queue.
type waiter struct {
	locker     *Locker
	ready      chan *hold // of one: a hold that was handed over, or nil for the turn; closed by Close
	prev, next *waiter
}

// A queue is a list of waiters, in order of arrival. It has no allocations of its own.
type queue struct {
	first, last *waiter
	length      int
}

func (q *queue) push(w *waiter) {
	q.length++
	w.prev, w.next = q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
}

func (q *queue) remove(w *waiter) {
	q.length--
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
}

// A run is a series of holds under one lease.
type run struct {
	length   int            // hand-overs so far
	wantedAt driver.Instant // when it was first seen that another process waits; zero before
}

// While another process waits, a run ends after that many hand-overs or that time. Until then it may go on.
const (
	maxRun     = 128
	maxRunTime = 5 * time.Millisecond
)

// maxBlock bounds the fencing tokens that a lease reserves for a run: each unused one puts the store's tokens ahead of
// its clock by a microsecond.
const maxBlock = 4096

// line waits until this goroutine gets a hold from another one, or the turn to ask the store. Without both and without
// an error, the caller asks without the turn: it must not wait here, and it is not known who holds the lock.
func (c *core) line(ctx context.Context, l *Locker, name string, noWait bool) (*gate, *hold, error) {
	c.mu.Lock()
	g := c.gates[name]
	switch {
	case c.isClosed:
		c.mu.Unlock()
		return nil, nil, ErrClosed
	case g == nil:
		g = &gate{name: name}
		c.gates[name] = g
		c.mu.Unlock()
		return g, nil, nil
	case noWait && g.held:
		c.mu.Unlock()
		return nil, nil, ErrHeld
	case noWait:
		c.mu.Unlock()
		return nil, nil, nil
	}
	w := g.waiter(l)
	g.queue.push(w)
	c.mu.Unlock()

	var err error
	select {
	case h, open := <-w.ready:
		if !open {
			return nil, nil, ErrClosed
		}
		if err = c.take(ctx, g, w, h); err == nil {
			return g, h, nil
		}
		w.ready <- h // there is room: nobody else sends
	case <-ctx.Done():
		err = c.during(g, context.Cause(ctx))
	}
	c.quit(g, w)
	return nil, nil, err
}

// during adds to the error of a wait that has ended why the store is unavailable, if it is.
func (c *core) during(g *gate, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.outage == nil {
		return err
	}
	return fmt.Errorf("%w: %w", g.outage, err)
}

// noteOutage notes for those that queue behind the goroutine with the turn whether the store is unavailable.
func (c *core) noteOutage(g *gate, err error) {
	if g == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.outage = err
}

// waiter returns one for l. It is called with core.mu held.
func (g *gate) waiter(l *Locker) *waiter {
	w := g.spare
	if w == nil {
		return &waiter{locker: l, ready: make(chan *hold, 1)}
	}
	g.spare, w.locker = w.next, l
	return w
}

// take accepts what a waiter got, or says why it comes too late. The turn, a nil hold, does not.
func (c *core) take(ctx context.Context, g *gate, w *waiter, h *hold) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if h == nil {
		return nil
	}
	h.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.over(); err != nil {
		return err
	}
	h.unseen = false
	w.next, g.spare = g.spare, w // nobody else knows of it any more
	return nil
}

// quit takes a waiter out of the queue who waits no longer, and passes on what it got in the meantime. After Close that is the
// turn, and there is nobody to pass it on to.
func (c *core) quit(g *gate, w *waiter) {
	c.mu.Lock()
	select {
	case h := <-w.ready:
		if h == nil {
			c.pass(g)
		}
		c.mu.Unlock()
		if h != nil {
			h.settle()
			_ = h.leave() // the store is told if need be, and the next one gets the lock
		}
	default:
		g.queue.remove(w)
		c.mu.Unlock()
	}
}

// waiting is how many queue here. It is called with core.mu held.
func (g *gate) waiting() int {
	if g == nil {
		return 0
	}
	return g.queue.length
}

// dismiss ends the wait of all who queue. It is called with core.mu held.
func (g *gate) dismiss() {
	for w := g.queue.first; w != nil; w = w.next {
		close(w.ready)
	}
	g.queue = queue{}
}

// passTurn gives up the turn.
func (c *core) passTurn(g *gate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass(g)
}

// pass gives the turn to the next in the queue. It is called with core.mu held.
func (c *core) pass(g *gate) {
	g.held = false
	w := g.queue.first
	if w == nil {
		delete(c.gates, g.name)
		return
	}
	g.queue.remove(w)
	g.passed = true
	w.ready <- nil
}

// confirmInterval is how long ago the store may have confirmed a lease that is handed over in this process. If the
// store ended the lease in the meantime, and another process had the lock, then for that long the next local hold gets
// a token below that of the other process: a resource that checks tokens refuses it.
const confirmInterval = 10 * time.Millisecond

// confirm reports whether the store has confirmed the lease of h within confirmInterval. It renews the lease for that
// if h is about to be released and handed over. It is called with core.mu held, and gives the mutex up while it calls
// the driver.
func (c *core) confirm(h *hold) bool {
	le, now := h.lease, driver.Now()
	switch {
	case h.count > 1 || h.cause != nil || h.deadline().Reached(now) || le.successor(now) == nil:
		return false
	case now.Sub(le.start) < confirmInterval:
		return true
	case le.renewing: // its answer may take long: the next hold asks the store itself
		return false
	}
	le.renewing = true
	c.schedule(le)
	before, timeout := le.start, min(h.locker.conf.releaseTimeout, h.deadline().Left(now)/2)
	c.mu.Unlock()
	c.renewAll([]*lease{le}, []driver.Lease{le.granted}, timeout)
	c.mu.Lock()
	return h.cause == nil && le.start != before
}

// successor returns the local waiter that the lease can be handed over to, or nil. It is called with core.mu held.
func (le *lease) successor(now driver.Instant) *waiter {
	g := le.gate
	if g == nil || g.queue.first == nil || !le.mayGoOn(now) {
		return nil
	}
	if w := g.queue.first; w.locker.conf.follows(&le.hold.locker.conf) {
		return w
	}
	return nil
}

// handOver gives a lease whose hold has just been released to the next in the queue, if that is allowed. It is called
// with core.mu held. If contexts of the old hold are still to be ended, the new one waits until the caller closes its after.
func (c *core) handOver(le *lease, now driver.Instant, ending bool) *hold {
	w := le.successor(now)
	if w == nil {
		return nil
	}
	g := le.gate
	g.queue.remove(w)
	le.run.length++
	h := le.newHold(w.locker, le.next, now)
	h.unseen = true
	le.next++
	c.schedule(le)
	if ending {
		h.after = make(chan struct{})
	}
	w.ready <- h
	return h
}

// handsOver reports whether holds under these options may pass from one to the next without the store: not where the
// store has to know of each.
func (c *config) handsOver() bool {
	return c.exclusive() && !c.fair && !c.inheritable && c.minHold == 0 && c.owner == ""
}

// follows reports whether a hold under c may take over the lease of one under had.
func (c *config) follows(had *config) bool {
	return c.handsOver() && c.ttl == had.ttl && c.lockDelay == had.lockDelay && c.label == had.label
}

// mayGoOn reports whether one more hold may have the lease.
func (le *lease) mayGoOn(now driver.Instant) bool {
	if le.next >= le.end || le.deadline.Left(now) < le.ttl/4 || !le.hold.locker.conf.handsOver() {
		return false
	}
	select {
	case <-le.wanted:
	default:
		if le.wanted != nil && le.hold.locker.core.outside[le.name] == 0 {
			return true
		}
	}
	if le.run.wantedAt.IsZero() {
		le.run.wantedAt, le.run.length = now, 0
	}
	return le.run.length < maxRun && now.Sub(le.run.wantedAt) < maxRunTime
}

// block is how many tokens the next lease, which l takes, should reserve: one for each who waits and could have it, and twice as
// many as the last lease used if it used them all, so that a long run costs the store few words.
func (g *gate) block(l *Locker) int {
	most, n := maxBlock, 1
	if g.wanted { // the last run was cut short for another process
		most = maxRun + 1
	}
	for w := g.queue.first; w != nil && n < most; w = w.next {
		if !w.locker.conf.follows(&l.conf) {
			return n
		}
		n++
	}
	return min(max(n, g.used), most)
}

// note learns from a lease that goes back to the store.
func (g *gate) note(le *lease) {
	if g == nil {
		return
	}
	first := le.granted.Grant().Token
	g.wanted = !le.run.wantedAt.IsZero()
	g.used = int(le.next - first)
	if le.next >= le.end {
		g.used *= 2
	}
}
