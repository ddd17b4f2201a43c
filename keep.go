package snib

// Stage 5, keep: the keeper renews the leases of all holds, and ends the holds whose leases it
// could not renew.

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// maxSleep bounds the keeper's sleep while there are holds. Go's timers stop while the machine
	// is suspended, so a loss may be noticed this long after the machine has resumed.
	maxSleep = 250 * time.Millisecond

	// maxBatch is the number of leases in one call of Renew: enough to make round trips cheap, and
	// few enough not to delay a store's other clients.
	maxBatch = 128

	// maxRenewers is the number of concurrent calls of Renew. If part of the store hangs, the
	// other calls still renew the remaining leases.
	maxRenewers = 8
)

// A lease is a driver's lease together with the keeper's state for it.
type lease struct {
	granted driver.Lease
	name    string
	id      string // of the attempt that led to the grant
	ttl     time.Duration
	queue   *nameQueue // the lease is at the head of this queue; nil if it is in none

	// noRenewal means that the keeper does not renew the lease. It is false for a session, which is
	// confirmed although the hold has the option NoRenewal.
	noRenewal bool

	watermark uint64 // the greatest token of the name that was seen before the request

	// Guarded by core.mu.
	hold   *hold         // the current one; nil before the first
	wanted chan struct{} // closed once isWanted is set; made by Lock.Wanted

	tellsWanted bool // the driver calls OnWanted
	isWanted    bool // OnWanted was called: another process waits

	// Fencing tokens for later holds, from nextToken up to but not including endToken.
	nextToken, endToken uint64

	run     localRun // the current series of local hand-overs
	labeled bool     // SetLabel was called: the text may be wrong for the next hold

	// confirmedAt is when the request for the last confirmation, a grant or renewal, was sent.
	confirmedAt driver.Instant

	deadline  driver.Instant // when the hold ends if no renewal succeeds
	renewAt   driver.Instant
	slack     time.Duration  // how long before renewAt it may be renewed, for fuller batches
	due       driver.Instant // when the keeper has to check the lease next
	renewing  bool
	renewErr  error // error of the last renewal, or nil
	lostErr   error // why the lease is over, if the store ended it
	heapIndex int   // index in the keeper's heap, or -1
}

// extend sets the times of a lease that was confirmed at start.
func (le *lease) extend(start driver.Instant) {
	le.confirmedAt = start
	le.deadline = start.Add(le.ttl - safetyOf(le.ttl))
	le.renewAt = start.Add(le.ttl/3 - rand.N(le.ttl/30+1)) // jitter spreads the renewals
	le.slack, le.renewErr = le.ttl/40, nil
	if le.noRenewal {
		le.renewAt, le.slack = le.deadline, 0 // the hold ends first
	}
}

// safetyOf returns the last part of a TTL, which a hold does not rely on.
func safetyOf(ttl time.Duration) time.Duration { return ttl/driver.Drift + min(driver.Margin, ttl/10) }

// keeper renews the leases of all holds, and ends the holds whose leases could not be renewed. It
// consists of a heap of leases ordered by when they are due, one goroutine that sleeps until
// then, and a few goroutines that call the driver. They end when there are no leases; the first one
// lingers, so that not every uncontended cycle starts it and its timer.
type keeper struct {
	heap      leaseHeap
	all       renewalOfAll
	running   bool
	lingers   bool           // there was no lease at the last check
	wakeAt    driver.Instant // when the goroutine will check next
	checkedAt driver.Instant // when it last checked
	wakeup    chan struct{}  // capacity 1: check now

	renewQueue []*lease // leases to renew, in order
	renewers   int
}

// nextDue returns when the keeper has to check le.
func (c *core) nextDue(le *lease) driver.Instant {
	due := le.hold.deadline()
	if !c.info.RenewsAll && !le.renewing {
		due = earlier(due, le.renewAt)
	}
	return due
}

// scheduleLocked sets when the keeper has to check le, which is in the heap. It wakes the keeper if
// it would sleep longer than that.
func (c *core) scheduleLocked(le *lease) {
	k := &c.keeper
	le.due = c.nextDue(le)
	next := le.due
	if c.info.RenewsAll {
		next = earlier(next, k.all.renewAt)
	}
	heap.Fix(&k.heap, le.heapIndex)
	switch {
	case !k.running:
		k.running, k.lingers = true, false
		k.wakeAt, k.checkedAt = driver.Instant{}, driver.Instant{}
		go c.runKeeper()
	case next.Before(k.wakeAt):
		k.wake()
	}
}

func earlier(a, b driver.Instant) driver.Instant {
	if b.Before(a) {
		return b
	}
	return a
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
// or more false if there has been no lease for a while. wakeAt is a point in time, not a duration,
// because the caller first ends contexts, and there may be many.
func (c *core) processDue() (ended endings, wakeAt driver.Instant, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := driver.Now()
	k := &c.keeper
	if !k.checkedAt.IsZero() && now.SteppedSince(k.checkedAt) > driver.Margin {
		k.rebase(now)
	}
	k.checkedAt, k.wakeAt = now, driver.Instant{}
	if c.info.RenewsAll {
		c.keepAllLocked(now, &ended)
	} else {
		c.keepEachLocked(now, &ended)
	}
	sleep := maxSleep
	if len(k.heap) > 0 {
		next := k.heap[0].due
		if c.info.RenewsAll {
			next = earlier(next, k.all.renewAt)
		}
		sleep = min(sleep, max(0, next.Left(now)))
	} else if k.lingers || c.isClosed {
		k.running = false
		return ended, driver.Instant{}, false
	}
	k.lingers = len(k.heap) == 0
	k.wakeAt = now.Add(sleep)
	return ended, k.wakeAt, true
}

// keepEachLocked starts the renewals and ends the holds that are due.
func (c *core) keepEachLocked(now driver.Instant, ended *endings) {
	k := &c.keeper
	for len(k.heap) > 0 {
		le := k.heap[0]
		switch {
		case c.endIfOverLocked(le, now, ended):
			continue
		case !le.renewing && le.renewAt.Left(now) <= le.slack:
			le.renewing = true
			k.renewQueue = append(k.renewQueue, le)
		case !le.due.Reached(now):
			c.startRenewersLocked()
			return
		}
		c.scheduleLocked(le)
	}
	c.startRenewersLocked()
}

// startRenewersLocked starts goroutines for the leases in the renewal queue.
func (c *core) startRenewersLocked() {
	k := &c.keeper
	for n := len(k.renewQueue); n > 0 && k.renewers < maxRenewers; n -= maxBatch {
		k.renewers++ // even if others run: they may hang
		go c.renew()
	}
}

// endIfOverLocked ends the hold of a lease if its time is over. It reports whether it did.
func (c *core) endIfOverLocked(le *lease, now driver.Instant, ended *endings) bool {
	if !le.hold.deadline().Reached(now) {
		return false
	}
	*ended = append(*ended, c.loseLocked(le, le.expiryError(now)))
	return true
}

// rebase recomputes all times after the wall clock has run ahead of the monotonic clock. The heap
// is ordered by the monotonic clock. Afterwards both clocks agree about the times.
func (k *keeper) rebase(now driver.Instant) {
	recompute := func(i *driver.Instant) { *i = now.Add(i.Left(now)) }
	for _, le := range k.heap {
		le.refresh()
		recompute(&le.confirmedAt)
		recompute(&le.deadline)
		recompute(&le.renewAt)
		recompute(&le.due)
		if !le.hold.until.IsZero() {
			recompute(&le.hold.until)
		}
	}
	heap.Init(&k.heap)
	if !k.all.renewAt.IsZero() {
		recompute(&k.all.start)
		recompute(&k.all.renewAt)
	}
}

// renew renews the leases of the renewal queue, batch by batch.
func (c *core) renew() {
	for {
		batch, granted, timeout := c.nextBatch()
		if len(batch) == 0 {
			return
		}
		c.renewBatch(batch, granted, timeout)
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

// renewBatch calls the driver once, with a timeout, for a batch of leases that are marked as
// renewing.
func (c *core) renewBatch(batch []*lease, granted []driver.Lease, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	began := time.Now()
	answers := c.driver.Renew(ctx, granted)
	cancel()
	elapsed := time.Since(began)
	var reports renewalReports
	for i, le := range batch {
		var answer driver.Renewal
		if i < len(answers) {
			answer = answers[i]
		} else {
			answer.Err = fmt.Errorf("the driver gave %d answers for %d leases", len(answers), len(batch))
		}
		reports = append(reports, c.applyRenewal(le, answer, elapsed)...)
	}
	reports.send()
}

// applyRenewal applies the answer for one lease. It returns what the Traces are told. It never
// revives a hold: an answer after the deadline is too late, whatever it says.
func (c *core) applyRenewal(le *lease, answer driver.Renewal, elapsed time.Duration) renewalReports {
	err := checkRenewal(answer)
	c.mu.Lock()
	le.renewing = false
	if le.heapIndex < 0 { // the hold ended during the request
		c.mu.Unlock()
		return nil
	}
	h, now := le.hold, driver.Now()
	h.deadline()                            // refreshes le
	margin := max(0, le.deadline.Left(now)) // of the lease: a hold that ends by MaxHold is not late
	var left time.Duration
	if !errors.Is(err, ErrLost) && !le.deadline.Reached(now) {
		if err == nil {
			le.extend(answer.Start)
		} else {
			le.slack, le.renewErr = 0, err
			le.renewAt = now.Add(max(le.deadline.Left(now)/5, 10*time.Millisecond))
		}
		left = max(0, h.deadline().Left(now))
		c.scheduleLocked(le)
	}
	c.mu.Unlock()
	if errors.Is(err, ErrLost) {
		c.handleLost(le, err)
	}
	if len(h.locker.conf.traces.renewed) == 0 {
		return nil
	}
	return renewalReports{{h, RenewedEvent{Event: eventOf(h), Took: elapsed, TTL: le.ttl, Margin: margin, Left: left,
		Err: err}}}
}

// checkRenewal returns the error of an answer.
func checkRenewal(answer driver.Renewal) error {
	if answer.Err == nil && answer.Start.IsZero() {
		return errors.New("the driver renewed a lease without a start")
	}
	return answer.Err
}

// renewalReports are what the Traces are told of renewals.
type renewalReports []renewalReport

type renewalReport struct {
	hold  *hold
	event RenewedEvent
}

// send calls the Traces. It does not wait for them: a slow Trace must not delay the renewal of
// these or other holds.
func (rs renewalReports) send() {
	if len(rs) == 0 {
		return
	}
	go func() {
		for _, r := range rs {
			r.hold.locker.conf.traces.renewed.call(&r.event)
		}
	}()
}

// loseLocked ends the hold of a lease and makes the next waiter the head of the local queue. The
// caller runs the result without core.mu.
func (c *core) loseLocked(le *lease, cause error) ending {
	le.refresh()
	c.keeper.remove(le)
	if le.queue != nil {
		c.advanceLocked(le.queue)
	}
	return le.hold.end(cause)
}

// handleLost ends the hold of a lease that the store has ended.
func (c *core) handleLost(le *lease, err error) {
	loss := asLoss(LossRefused, cmp.Or(err, error(ErrLost)))
	var ended endings
	c.mu.Lock()
	le.lostErr = loss
	if le.heapIndex >= 0 {
		ended = append(ended, c.loseLocked(le, loss))
	}
	c.mu.Unlock()
	ended.run()
}

// remove removes a lease from the keeper, if it is there.
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
