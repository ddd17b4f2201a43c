package snib

// Stage 5, keep, for drivers that renew all their leases together (Info.RenewsAll): one answer
// tells that the session of all leases lives.

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
)

// renewalOfAll is the keeper's state for such a driver. A renewal costs the same for any number of
// leases: it sets start, and each lease is extended when somebody asks for its deadline. So a lease
// in the heap may be due later than the heap says.
type renewalOfAll struct {
	start   driver.Instant // when the request for the last confirmation was sent
	ttl     time.Duration  // the least of the leases since the keeper had none
	renewAt driver.Instant // zero for never
	err     error          // of the last renewal, or nil
}

// add has a lease renewed with the others, at its time or before.
func (all *renewalOfAll) add(le *lease) {
	if all.ttl == 0 {
		*all = renewalOfAll{start: le.confirmedAt, ttl: le.ttl, renewAt: le.renewAt}
	}
	all.ttl, all.renewAt = min(all.ttl, le.ttl), earlier(all.renewAt, le.renewAt)
}

// left returns for how long no lease ends if no renewal succeeds.
func (all *renewalOfAll) left(now driver.Instant) time.Duration {
	return max(0, all.start.Add(all.ttl-safetyOf(all.ttl)).Left(now))
}

// refresh extends a lease of the keeper that was confirmed together with all others.
func (le *lease) refresh() {
	if all := &le.hold.locker.core.keeper.all; le.heapIndex >= 0 && le.confirmedAt.Before(all.start) {
		le.extend(all.start)
	}
}

// keepAllLocked is keepEachLocked for a driver that renews all leases together. If the driver does
// not return from a renewal in time, another one starts.
func (c *core) keepAllLocked(now driver.Instant, ended *endings) {
	k := &c.keeper
	c.endOverdueLocked(now, ended)
	if len(k.heap) == 0 {
		k.all = renewalOfAll{}
		return
	}
	if k.all.renewAt.Reached(now) {
		timeout := max(k.all.left(now)/2, minRenewTimeout)
		k.all.renewAt = now.Add(timeout + driver.CancelTimeout) // or the keeper would not sleep
		if k.renewers < maxRenewers {
			k.renewers++
			go c.renewTogether(timeout)
		}
	}
}

// minRenewTimeout bounds a renewal of all leases from below: the lease that ends first may be about
// to, and the others still profit.
const minRenewTimeout = 10 * time.Millisecond

// endOverdueLocked ends the holds whose time is over.
func (c *core) endOverdueLocked(now driver.Instant, ended *endings) {
	k := &c.keeper
	for len(k.heap) > 0 && k.heap[0].due.Reached(now) {
		if !c.endIfOverLocked(k.heap[0], now, ended) {
			c.refreshLocked()
		}
	}
}

// refreshLocked sets when each lease is due. It orders the heap once, which costs less than a step
// for each lease.
func (c *core) refreshLocked() {
	k := &c.keeper
	for _, le := range k.heap {
		le.due = c.nextDue(le)
	}
	heap.Init(&k.heap)
}

// renewTogether calls the driver once, with a timeout, for all leases.
func (c *core) renewTogether(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	began := time.Now()
	answers := c.driver.Renew(ctx, nil)
	cancel()
	answer := driver.Renewal{Err: fmt.Errorf("the driver gave %d answers for all leases", len(answers))}
	if len(answers) == 1 {
		answer = answers[0]
	}
	ended, reports := c.applyToAll(answer, time.Since(began))
	ended.run()
	reports.send()
}

// applyToAll applies the answer for all leases. Like applyRenewal, it never revives a hold.
func (c *core) applyToAll(answer driver.Renewal, elapsed time.Duration) (ended endings, reports renewalReports) {
	err := checkRenewal(answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	k, now := &c.keeper, driver.Now()
	k.renewers--
	if c.endOverdueLocked(now, &ended); len(k.heap) == 0 {
		return ended, nil
	}
	if c.tracesRenewals.Load() {
		reports = k.reportAll(now, elapsed, err)
	}
	if err != nil {
		k.all.err = err
		k.all.renewAt = now.Add(max(k.all.left(now)/5, minRenewTimeout))
	} else if k.all.start.Before(answer.Start) {
		k.all.start, k.all.err = answer.Start, nil
		k.all.renewAt = answer.Start.Add(k.all.ttl/3 - rand.N(k.all.ttl/30+1))
	}
	if k.all.renewAt.Before(k.wakeAt) {
		k.wake()
	}
	for i := range reports {
		reports[i].event.Left = max(0, reports[i].hold.deadline().Left(now))
	}
	return ended, reports
}

// reportAll returns what the Traces are told of an answer for all leases that is about to be
// applied.
func (k *keeper) reportAll(now driver.Instant, elapsed time.Duration, err error) (reports renewalReports) {
	for _, le := range k.heap {
		if h := le.hold; len(h.locker.conf.traces.renewed) > 0 {
			le.refresh()
			margin := max(0, le.deadline.Left(now))
			reports = append(reports,
				renewalReport{h, RenewedEvent{Event: eventOf(h), Took: elapsed, TTL: le.ttl, Margin: margin, Err: err}})
		}
	}
	return reports
}
