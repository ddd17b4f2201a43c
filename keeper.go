package snib

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
)

// The clocks of store and holder may differ in rate by one part in drift; a margin is for the rest: the scheduler, and
// the way of a context's end to those who wait for it.
const (
	drift  = 100
	margin = 2 * time.Millisecond
)

const (
	// maxNap bounds the keeper's sleep while there are holds: the timers of Go stand still while the machine sleeps, so
	// this is how late after a sleep the loss can be told.
	maxNap = 250 * time.Millisecond

	// maxBatch is the number of leases in one call of Renew: enough to make round trips cheap, and few enough not to
	// hold a store up.
	maxBatch = 128

	// maxRenewers is the number of calls of Renew at a time, so that a part of the store that hangs does not keep the
	// rest from being renewed.
	maxRenewers = 8
)

// A lease is a driver's lease in the keeper's care.
type lease struct {
	granted driver.Lease
	name    string
	owner   string
	ttl     time.Duration
	wanted  <-chan struct{}
	gate    *gate // whose turn the lease keeps; nil if it has none

	// Guarded by core.mu.
	hold      *hold  // the present one
	next, end uint64 // fencing tokens for holds to come: from next to below end
	run       run    // of local hand-overs

	start    driver.Instant // of its last confirmation by the store: before the grant or the last renewal was asked for
	deadline driver.Instant // when the hold ends if no renewal succeeds
	renewAt  driver.Instant
	slack    time.Duration  // how much earlier it may be renewed, for fuller batches
	due      driver.Instant // when the keeper has to look next
	renewing bool
	trouble  error  // of the last renewal, if it failed
	ended    error  // why the lease is over, if the store said so
	merged   *lease // the lease that this one was merged into, or nil
	index    int    // in the keeper's heap; -1 if it is not there
}

// newLease returns a lease that is to be asked for. It is in nobody's care yet.
func newLease(name, owner string, g *gate) *lease {
	return &lease{name: name, owner: owner, gate: g, index: -1}
}

// fill takes over what the driver granted. The times count from what the driver says of the request: from before it was
// sent, not from when the answer came. The hold may rely on the lease but for its last part, the delay.
func (le *lease) fill(req driver.Request, delay time.Duration, granted driver.Lease) {
	grant := granted.Grant()
	le.granted, le.ttl, le.wanted = granted, req.TTL, grant.Wanted
	le.next, le.end = grant.Token+1, grant.Token+uint64(max(grant.Tokens, 1))
	if grant.TTL > 0 {
		le.ttl = grant.TTL
	}
	le.ttl -= delay
	le.extend(grant.Start)
}

// extend sets the times of a lease that began at start.
func (le *lease) extend(start driver.Instant) {
	le.start = start
	le.deadline = start.Add(le.ttl - le.ttl/drift - min(margin, le.ttl/10))
	le.renewAt = start.Add(le.ttl/3 - rand.N(le.ttl/30+1)) // jittered: holds that began together part
	le.slack, le.trouble = le.ttl/40, nil
}

// keeper renews the leases of all holds and ends those that could not be renewed: a heap of leases by the time at which
// something is due, one goroutine that sleeps until then, and a few that call the driver. The goroutines run only while
// there are leases. Its fields are guarded by core.mu.
type keeper struct {
	heap    byDue
	running bool
	wakeAt  driver.Instant // when the goroutine will look next
	looked  driver.Instant // when it last did
	poke    chan struct{}  // of one: look now

	waiting  []*lease // for renewal, in order
	renewers int
}

// install makes a granted lease a hold of l and puts it into the keeper's care, or finds that it belongs to a hold that is there.
func (c *core) install(l *Locker, le *lease, now driver.Instant) (_ *hold, joined bool, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isClosed:
		return nil, false, ErrClosed
	case le.ended != nil: // the store ended the lease before its grant arrived here
		return nil, false, le.ended
	}
	if h := c.merge(le); h != nil {
		return h, true, nil
	}
	h := le.newHold(l, le.next-1, now)
	if l.conf.owner != "" {
		c.owned[c.owned.of(h)] = h
	}
	c.seen.raise(le.name, le.end-1)
	if l.conf.exclusive() && le.gate != nil {
		le.gate.held = true
	} else {
		le.gate = nil
	}
	heap.Push(&c.keeper.heap, le)
	c.schedule(le)
	return h, false, nil
}

// newHold makes a new hold the present one of the lease.
func (le *lease) newHold(l *Locker, token uint64, now driver.Instant) *hold {
	h := &hold{locker: l, lease: le, token: token, since: now, count: 1}
	if l.conf.maxHold > 0 {
		h.until = now.Add(l.conf.maxHold)
	}
	le.hold = h
	return h
}

// schedule finds out when the keeper has to look at le, which is in the heap, and wakes it if that is too soon for it.
func (c *core) schedule(le *lease) {
	k := &c.keeper
	le.due = le.hold.deadline()
	if !le.renewing && le.renewAt.Before(le.due) {
		le.due = le.renewAt
	}
	heap.Fix(&k.heap, le.index)
	switch {
	case !k.running:
		k.running = true
		k.wakeAt, k.looked = driver.Instant{}, driver.Instant{}
		go c.keep()
	case le.due.Before(k.wakeAt):
		k.wake()
	}
}

func (k *keeper) wake() {
	select {
	case k.poke <- struct{}{}:
	default: // it is about to look anyway
	}
}

// keep is the keeper's goroutine.
func (c *core) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		over, wakeAt, more := c.tend()
		over.run()
		if !more {
			return
		}
		timer.Reset(max(0, wakeAt.Left(driver.Now())))
		select {
		case <-timer.C:
		case <-c.keeper.poke:
		}
	}
}

// tend does what is due, and says when to look again, or that nothing is left to keep. Time goes by until the caller sleeps:
// it ends contexts before, which may be many.
func (c *core) tend() (over endings, wakeAt driver.Instant, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := driver.Now()
	k := &c.keeper
	if !k.looked.IsZero() && now.SteppedSince(k.looked) > margin {
		k.rebase(now)
	}
	k.looked, k.wakeAt = now, driver.Instant{}
	for len(k.heap) > 0 {
		le := k.heap[0]
		if le.hold.deadline().Reached(now) {
			over = append(over, c.lose(le, le.overdue(now)))
			continue
		}
		if le.renewing || le.renewAt.Left(now) > le.slack {
			break
		}
		le.renewing = true
		k.waiting = append(k.waiting, le)
		c.schedule(le)
	}
	for n := len(k.waiting); n > 0 && k.renewers < maxRenewers; n -= maxBatch {
		k.renewers++ // also if others run: they may hang
		go c.renew()
	}
	if len(k.heap) == 0 {
		k.running = false
		return over, driver.Instant{}, false
	}
	k.wakeAt = now.Add(min(maxNap, max(0, k.heap[0].due.Left(now))))
	return over, k.wakeAt, true
}

// rebase writes all times anew after the wall clock has run ahead of the monotonic one, in whose order the heap is: from now on
// both say the same of them.
func (k *keeper) rebase(now driver.Instant) {
	anew := func(i *driver.Instant) { *i = now.Add(i.Left(now)) }
	for _, le := range k.heap {
		anew(&le.deadline)
		anew(&le.renewAt)
		anew(&le.due)
		if !le.hold.until.IsZero() {
			anew(&le.hold.until)
		}
	}
	heap.Init(&k.heap)
}

// lose ends the hold of a lease and lets the next in the local queue ask the store. It is called with core.mu held; the
// caller runs the result without.
func (c *core) lose(le *lease, cause error) ending {
	c.keeper.remove(le)
	if le.gate != nil {
		c.pass(le.gate)
	}
	return le.hold.end(cause)
}

// gone ends the hold of a lease of which the store said that it is over.
func (c *core) gone(le *lease, err error) {
	if err == nil {
		err = ErrLost
	} else if !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	err = &lossError{err, LossRefused}
	var over endings
	c.mu.Lock()
	le.ended = err
	if le.merged != nil {
		le = le.merged
		le.ended = err
	}
	if le.index >= 0 {
		over = append(over, c.lose(le, err))
	}
	c.mu.Unlock()
	over.run()
}

// renew calls the driver for the leases that wait for it, batch by batch.
func (c *core) renew() {
	for {
		batch, due, bound := c.nextBatch()
		if len(batch) == 0 {
			return
		}
		c.renewAll(batch, due, bound)
	}
}

// renewAll calls the driver once for a batch of leases that are marked as renewing, for as long as bound at most.
func (c *core) renewAll(batch []*lease, due []driver.Lease, bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	began := time.Now()
	answers := c.driver.Renew(ctx, due)
	cancel()
	took := time.Since(began)
	var tell []func()
	for i, le := range batch {
		answer := driver.Renewal{Err: fmt.Errorf("the driver gave %d answers for %d leases", len(answers), len(batch))}
		if i < len(answers) {
			answer = answers[i]
		}
		if t := c.renewed(le, answer, took); t != nil {
			tell = append(tell, t)
		}
	}
	if len(tell) > 0 { // apart: a slow Trace must keep neither these holds nor others from being looked after
		go func() {
			for _, t := range tell {
				t()
			}
		}()
	}
}

// nextBatch takes leases to renew. bound is how long the call may take: half of what is left to the one that ends first,
// so that there is time for another try. An empty batch ends the renewer.
func (c *core) nextBatch() (batch []*lease, due []driver.Lease, bound time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, now := &c.keeper, driver.Now()
	for len(k.waiting) > 0 && len(batch) < maxBatch {
		le := k.waiting[0]
		k.waiting[0], k.waiting = nil, k.waiting[1:]
		left := le.deadline.Left(now) / 2
		if le.index < 0 || left <= 0 {
			continue
		}
		if len(batch) == 0 || left < bound {
			bound = left
		}
		batch, due = append(batch, le), append(due, le.granted)
	}
	if len(batch) == 0 {
		k.renewers--
	}
	return batch, due, bound
}

// renewed takes the answer for one lease, and returns what is to be told of it, or nil. It never revives: an answer that comes
// after the deadline is too late, whatever it says.
func (c *core) renewed(le *lease, answer driver.Renewal, took time.Duration) (tell func()) {
	err := answer.Err
	if err == nil && answer.Start.IsZero() {
		err = errors.New("the driver renewed a lease without a start")
	}
	c.mu.Lock()
	le.renewing = false
	if le.index < 0 { // the hold ended while the store was asked
		c.mu.Unlock()
		return nil
	}
	h, now := le.hold, driver.Now()
	margin := max(0, h.deadline().Left(now))
	var left time.Duration
	if !errors.Is(err, ErrLost) && !le.deadline.Reached(now) {
		if err == nil {
			le.extend(answer.Start)
		} else {
			le.slack, le.trouble = 0, err
			le.renewAt = now.Add(max(le.deadline.Left(now)/5, 10*time.Millisecond))
		}
		left = max(0, h.deadline().Left(now))
		c.schedule(le)
	}
	ttl := le.ttl // merge may change it
	c.mu.Unlock()
	if errors.Is(err, ErrLost) {
		c.gone(le, err)
	}
	if len(h.locker.conf.traces.renewed) == 0 {
		return nil
	}
	return func() {
		h.locker.conf.traces.renewed.tell(
			&Event{Name: le.name, Backend: c.info.Backend, Token: h.token, Took: took, TTL: ttl, Margin: margin, Left: left, Err: err})
	}
}

// remove takes a lease out of the keeper's care, if it is in it. It is called with core.mu held.
func (k *keeper) remove(le *lease) {
	if le.index < 0 {
		return
	}
	heap.Remove(&k.heap, le.index)
}

// byDue is a heap of leases.
type byDue []*lease

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due.Before(b[j].due) }
func (b byDue) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].index, b[j].index = i, j
}

func (b *byDue) Push(x any) {
	le := x.(*lease)
	le.index = len(*b)
	*b = append(*b, le)
}

func (b *byDue) Pop() any {
	last := len(*b) - 1
	le := (*b)[last]
	(*b)[last], *b = nil, (*b)[:last]
	le.index = -1
	return le
}
