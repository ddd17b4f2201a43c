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

// The clocks of store and holder may differ in rate by one part in drift. The margin allows for
// the rest: the scheduler, and the time until the end of a context reaches those who wait for it.
const (
	drift  = 100
	margin = 2 * time.Millisecond
)

const (
	// maxSleep bounds the keeper's sleep while there are holds. Go's timers stand still while the
	// machine sleeps, so after a sleep a loss may be noticed this late.
	maxSleep = 250 * time.Millisecond

	// maxBatch is the number of leases in one call of Renew: enough to make round trips cheap,
	// and few enough not to hold a store up.
	maxBatch = 128

	// maxRenewers is the number of concurrent calls of Renew. If part of the store hangs, the
	// other calls still renew the remaining leases.
	maxRenewers = 8
)

// A lease is a driver's lease together with the keeper's state for it.
type lease struct {
	granted driver.Lease
	name    string
	owner   string
	ttl     time.Duration
	wanted  <-chan struct{}
	queue   *nameQueue // the lease is at the head of this queue; nil if it is in none

	// Guarded by core.mu.
	hold *hold // the current one

	// Fencing tokens for later holds, from nextToken up to but not including endToken.
	nextToken, endToken uint64

	run localRun // the current series of local hand-overs

	// confirmedAt is when the request for the last confirmation, a grant or renewal, was sent.
	confirmedAt driver.Instant

	deadline   driver.Instant // when the hold ends if no renewal succeeds
	renewAt    driver.Instant
	slack      time.Duration  // how much before renewAt it may be renewed, for fuller batches
	due        driver.Instant // when the keeper has to check the lease next
	renewing   bool
	renewErr   error  // error of the last renewal, or nil
	lostErr    error  // why the lease is over, if the store ended it
	mergedInto *lease // the lease that this one was merged into, or nil
	heapIndex  int    // index in the keeper's heap, or -1
}

// newLease returns a lease for a request that is about to be sent.
// The keeper does not have it yet.
func newLease(name, owner string, q *nameQueue) *lease {
	return &lease{name: name, owner: owner, queue: q, heapIndex: -1}
}

// fill sets what the driver granted. The times count from when the driver sent the request, not
// from when the answer came. The hold may rely on the lease except for its last part, the delay.
func (le *lease) fill(req driver.Request, delay time.Duration, granted driver.Lease) {
	grant := granted.Grant()
	le.granted, le.ttl, le.wanted = granted, req.TTL, grant.Wanted
	le.nextToken, le.endToken = grant.Token+1, grant.Token+uint64(max(grant.Tokens, 1))
	if grant.TTL > 0 {
		le.ttl = grant.TTL
	}
	le.ttl -= delay
	le.extend(grant.Start)
}

// extend sets the times of a lease that was confirmed at start.
func (le *lease) extend(start driver.Instant) {
	le.confirmedAt = start
	le.deadline = start.Add(le.ttl - le.ttl/drift - min(margin, le.ttl/10))
	le.renewAt = start.Add(le.ttl/3 - rand.N(le.ttl/30+1)) // jitter spreads the renewals
	le.slack, le.renewErr = le.ttl/40, nil
}

// keeper renews the leases of all holds, and ends the holds whose leases could not be renewed. It
// consists of a heap of leases ordered by when they are due, one goroutine that sleeps until
// then, and a few goroutines that call the driver. The goroutines run only while there are
// leases. Its fields are guarded by core.mu.
type keeper struct {
	heap      leaseHeap
	running   bool
	wakeAt    driver.Instant // when the goroutine will check next
	checkedAt driver.Instant // when it last checked
	wakeup    chan struct{}  // capacity 1: check now

	renewQueue []*lease // leases to renew, in order
	renewers   int
}

// install makes a granted lease a hold of l and adds it to the keeper. joined reports that the
// lease belongs to an existing hold instead.
func (c *core) install(l *Locker, le *lease, now driver.Instant) (_ *hold, joined bool, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isClosed:
		return nil, false, ErrClosed
	case le.lostErr != nil: // the store ended the lease before its grant arrived here
		return nil, false, le.lostErr
	}
	if h := c.merge(le); h != nil {
		return h, true, nil
	}
	h := le.newHold(l, le.nextToken-1, now)
	if l.conf.owner != "" {
		c.ownerHolds[c.ownerHolds.key(h)] = h
	}
	c.watermarks.raise(le.name, le.endToken-1)
	if l.conf.exclusive() && le.queue != nil {
		le.queue.held = true
	} else {
		le.queue = nil
	}
	heap.Push(&c.keeper.heap, le)
	c.schedule(le)
	return h, false, nil
}

// newHold returns a new hold, and makes it the current one of the lease.
func (le *lease) newHold(l *Locker, token uint64, now driver.Instant) *hold {
	h := &hold{locker: l, lease: le, token: token, since: now, lockCount: 1}
	if l.conf.maxHold > 0 {
		h.until = now.Add(l.conf.maxHold)
	}
	le.hold = h
	return h
}

// schedule sets when the keeper has to check le, which is in the heap. It wakes the keeper if it
// would sleep longer than that.
func (c *core) schedule(le *lease) {
	k := &c.keeper
	le.due = le.hold.deadline()
	if !le.renewing && le.renewAt.Before(le.due) {
		le.due = le.renewAt
	}
	heap.Fix(&k.heap, le.heapIndex)
	switch {
	case !k.running:
		k.running = true
		k.wakeAt, k.checkedAt = driver.Instant{}, driver.Instant{}
		go c.runKeeper()
	case le.due.Before(k.wakeAt):
		k.wake()
	}
}

// wake makes the keeper check its leases now.
func (k *keeper) wake() {
	select {
	case k.wakeup <- struct{}{}:
	default: // it is about to check anyway
	}
}

// runKeeper is the keeper's goroutine.
func (c *core) runKeeper() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ended, wakeAt, more := c.processDue()
		ended.run()
		if !more {
			return
		}
		timer.Reset(max(0, wakeAt.Left(driver.Now())))
		select {
		case <-timer.C:
		case <-c.keeper.wakeup:
		}
	}
}

// processDue starts the renewals and ends the holds that are due. It returns when to check again,
// or more false if no lease is left. wakeAt is a point in time, not a duration, because the
// caller first ends contexts, and there may be many.
func (c *core) processDue() (ended endings, wakeAt driver.Instant, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := driver.Now()
	k := &c.keeper
	if !k.checkedAt.IsZero() && now.SteppedSince(k.checkedAt) > margin {
		k.rebase(now)
	}
	k.checkedAt, k.wakeAt = now, driver.Instant{}
	for len(k.heap) > 0 {
		le := k.heap[0]
		if le.hold.deadline().Reached(now) {
			ended = append(ended, c.lose(le, le.expiryError(now)))
			continue
		}
		if le.renewing || le.renewAt.Left(now) > le.slack {
			break
		}
		le.renewing = true
		k.renewQueue = append(k.renewQueue, le)
		c.schedule(le)
	}
	for n := len(k.renewQueue); n > 0 && k.renewers < maxRenewers; n -= maxBatch {
		k.renewers++ // even if others run: they may hang
		go c.renew()
	}
	if len(k.heap) == 0 {
		k.running = false
		return ended, driver.Instant{}, false
	}
	k.wakeAt = now.Add(min(maxSleep, max(0, k.heap[0].due.Left(now))))
	return ended, k.wakeAt, true
}

// rebase recomputes all times after the wall clock has run ahead of the monotonic clock, by which
// the heap is ordered. Afterwards both clocks agree about them.
func (k *keeper) rebase(now driver.Instant) {
	recompute := func(i *driver.Instant) { *i = now.Add(i.Left(now)) }
	for _, le := range k.heap {
		recompute(&le.deadline)
		recompute(&le.renewAt)
		recompute(&le.due)
		if !le.hold.until.IsZero() {
			recompute(&le.hold.until)
		}
	}
	heap.Init(&k.heap)
}

// lose ends the hold of a lease and makes the next waiter the head of the local queue. It is
// called with core.mu held; the caller runs the result without it.
func (c *core) lose(le *lease, cause error) ending {
	c.keeper.remove(le)
	if le.queue != nil {
		c.advanceLocked(le.queue)
	}
	return le.hold.end(cause)
}

// handleLost ends the hold of a lease that the store has ended.
func (c *core) handleLost(le *lease, err error) {
	if err == nil {
		err = ErrLost
	} else if !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	err = &lossError{err, LossRefused}
	var ended endings
	c.mu.Lock()
	le.lostErr = err
	if le.mergedInto != nil {
		le = le.mergedInto
		le.lostErr = err
	}
	if le.heapIndex >= 0 {
		ended = append(ended, c.lose(le, err))
	}
	c.mu.Unlock()
	ended.run()
}

// renew renews the leases of the renewal queue, batch by batch.
func (c *core) renew() {
	for {
		batch, granted, timeout := c.nextBatch()
		if len(batch) == 0 {
			return
		}
		c.renewAll(batch, granted, timeout)
	}
}

// renewAll calls the driver once, with a timeout, for a batch of
// leases that are marked as renewing.
func (c *core) renewAll(batch []*lease, granted []driver.Lease, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	began := time.Now()
	answers := c.driver.Renew(ctx, granted)
	cancel()
	elapsed := time.Since(began)
	var reports []func()
	for i, le := range batch {
		answer := driver.Renewal{Err: fmt.Errorf("the driver gave %d answers for %d leases", len(answers), len(batch))}
		if i < len(answers) {
			answer = answers[i]
		}
		if report := c.applyRenewal(le, answer, elapsed); report != nil {
			reports = append(reports, report)
		}
	}
	// A slow Trace must not delay the renewal of these or other holds.
	if len(reports) > 0 {
		go func() {
			for _, report := range reports {
				report()
			}
		}()
	}
}

// nextBatch takes a batch from the renewal queue. timeout bounds the call of Renew: half
// of the time left to the lease that ends first, so that there is time to retry. An
// empty batch ends the renewer.
func (c *core) nextBatch() (batch []*lease, granted []driver.Lease, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, now := &c.keeper, driver.Now()
	for len(k.renewQueue) > 0 && len(batch) < maxBatch {
		le := k.renewQueue[0]
		k.renewQueue[0], k.renewQueue = nil, k.renewQueue[1:]
		left := le.deadline.Left(now) / 2
		if le.heapIndex < 0 || left <= 0 {
			continue
		}
		if len(batch) == 0 || left < timeout {
			timeout = left
		}
		batch, granted = append(batch, le), append(granted, le.granted)
	}
	if len(batch) == 0 {
		k.renewers--
	}
	return batch, granted, timeout
}

// applyRenewal applies the answer for one lease. It returns the call of the Traces, or nil. It
// never revives a hold: an answer after the deadline is too late, whatever it says.
func (c *core) applyRenewal(le *lease, answer driver.Renewal, elapsed time.Duration) (report func()) {
	err := answer.Err
	if err == nil && answer.Start.IsZero() {
		err = errors.New("the driver renewed a lease without a start")
	}
	c.mu.Lock()
	le.renewing = false
	if le.heapIndex < 0 { // the hold ended during the request
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
			le.slack, le.renewErr = 0, err
			le.renewAt = now.Add(max(le.deadline.Left(now)/5, 10*time.Millisecond))
		}
		left = max(0, h.deadline().Left(now))
		c.schedule(le)
	}
	ttl := le.ttl // merge may change it
	c.mu.Unlock()
	if errors.Is(err, ErrLost) {
		c.handleLost(le, err)
	}
	if len(h.locker.conf.traces.renewed) == 0 {
		return nil
	}
	return func() {
		h.locker.conf.traces.renewed.call(RenewedEvent{Event: h.event(), Took: elapsed, TTL: ttl, Margin: margin, Left: left, Err: err})
	}
}

// remove removes a lease from the keeper, if it is there. It is called with core.mu held.
func (k *keeper) remove(le *lease) {
	if le.heapIndex < 0 {
		return
	}
	heap.Remove(&k.heap, le.heapIndex)
}

// leaseHeap is a heap of leases, ordered by when they are due.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *leaseHeap) Push(x any) {
	le := x.(*lease)
	le.heapIndex = len(*h)
	*h = append(*h, le)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	le := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	le.heapIndex = -1
	return le
}
