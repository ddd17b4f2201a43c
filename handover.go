package snib

// Hand-over, a part of stage 6: a released lease serves the next goroutine of this process, without
// a request to the store.

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// A localRun is a series of holds under one lease, handed over within the process.
type localRun struct {
	handOvers int // so far, or since contendedSince if that is set

	// contendedSince is when a waiter outside this queue was first noticed. Where the backend does
	// not report waiters, one is assumed. The time is zero before.
	contendedSince driver.Instant
}

// While somebody outside the local queue waits for the lock, a run ends after this many
// hand-overs or this time, whichever comes first.
const (
	maxRunHandOvers = 128
	maxRunTime      = 5 * time.Millisecond
)

// allowsHandOver reports whether the lease of a hold with these options may be handed over within
// the process. That is false for options with which the store has to know each hold.
func (c *config) allowsHandOver() bool {
	return c.exclusive() && !c.fair && !c.detached && !c.noRenewal && c.minHold == 0
}

// canTakeOver reports whether a hold with options c may take over the
// lease of a hold with options prev.
func (c *config) canTakeOver(prev *config) bool {
	return c.allowsHandOver() && c.ttl == prev.ttl && c.lockDelay == prev.lockDelay && c.label == prev.label
}

// tokenBlockSize returns the number of tokens that the next lease, for l, should reserve: one for
// each waiter that could take the lease over, and at least twice as many as the last lease used
// if it used them all, so that a long run costs the store few requests.
func (q *nameQueue) tokenBlockSize(l *Locker) int {
	limit, n := driver.MaxTokens, 1
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

// confirmInterval bounds the age of the last confirmation of a lease that is handed over within
// this process. The store may have ended the lease since then, and granted the lock to another
// process. In that case the next local hold gets a smaller token than the other process had, and a
// resource that checks tokens refuses it.
const confirmInterval = 10 * time.Millisecond

// confirmLocked reports whether the store has confirmed the lease of h within confirmInterval. If h
// is about to be released and handed over, and the last confirmation is older, confirmLocked renews
// the lease. It unlocks core.mu during the call of the driver, and returns the time after it.
func (c *core) confirmLocked(h *hold, now driver.Instant) (confirmed bool, _ driver.Instant) {
	le := h.lease
	switch {
	case h.lockCount > 1 || h.cause != nil || h.deadline().Reached(now) || le.successor(now) == nil:
		return false, now
	case now.Sub(le.confirmedAt) < confirmInterval:
		return true, now
	case le.renewing: // the answer may take long: the next hold sends its own request
		return false, now
	}
	le.renewing = true
	c.scheduleLocked(le)
	asked, timeout := now, min(releaseTimeout/2, h.deadline().Left(now)/2)
	c.mu.Unlock()
	c.renewBatch([]*lease{le}, []driver.Lease{le.granted}, timeout)
	now = driver.Now()
	c.mu.Lock()
	return h.cause == nil && asked.Sub(le.confirmedAt) < confirmInterval, now
}

// successor returns the local waiter to which the lease may be handed over, or nil.
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

// canHandOver reports whether the lease may serve one more hold.
func (le *lease) canHandOver(now driver.Instant) bool {
	if le.labeled || le.nextToken >= le.endToken || le.deadline.Left(now) < le.ttl/4 ||
		!le.hold.locker.conf.allowsHandOver() {
		return false
	}
	if le.tellsWanted && !le.isWanted && le.hold.locker.core.storeWaiters[le.name] == 0 {
		return true
	}
	if le.run.contendedSince.IsZero() {
		le.run.contendedSince, le.run.handOvers = now, 0
	}
	return le.run.handOvers < maxRunHandOvers && now.Sub(le.run.contendedSince) < maxRunTime
}

// handOverLocked hands a lease whose hold has just been released to the first waiter, if that is
// allowed. It returns the new hold, or nil. If contexts of the old hold have yet to end, the new
// hold waits until the caller closes its prevDone.
func (c *core) handOverLocked(le *lease, now driver.Instant, contextsPending bool) *hold {
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
	c.scheduleLocked(le)
	if contextsPending {
		h.prevDone = make(chan struct{})
	}
	w.ready <- h
	return h
}

// handleWanted records that another process waits for the lock.
func (c *core) handleWanted(le *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !le.isWanted && le.wanted != nil {
		close(le.wanted)
	}
	le.isWanted = true
}
