package snib

// Stage 4, adopt: what the driver granted becomes a hold, unless it comes too late, has a token
// that went back, or belongs to a hold that the owner already has.

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// adopt makes a granted lease a hold, or releases it. joined reports that the lease belongs to an
// existing hold.
func (l *Locker) adopt(ctx context.Context, le *lease, granted driver.Lease) (_ *hold, joined bool, _ error) {
	h, joined, err := l.checkAndInstall(ctx, le, granted)
	if err != nil && granted != nil && !l.core.hasOwnerHold(le.owner, le.name) {
		// The caller gets err. If this release fails, the lease lapses by itself.
		_, _ = l.core.releaseLease(granted, releaseTimeout)
	}
	return h, joined, err
}

// checkAndInstall checks what the driver granted, and makes it a hold that the keeper keeps.
func (l *Locker) checkAndInstall(ctx context.Context, le *lease, granted driver.Lease) (_ *hold, joined bool, _ error) {
	if granted == nil {
		return nil, false, fmt.Errorf("the driver granted nothing without an error")
	}
	grant := granted.Grant()
	if grant.Start.IsZero() || (grant.Token == 0 && l.core.info.Fencing > driver.FencingNone) {
		return nil, false, fmt.Errorf("the driver granted a lease without start or token")
	}
	if l.isRegressed(grant.Token, le.watermark) {
		if err := l.reportRegression(le.name, grant.Token, le.watermark); err != nil {
			return nil, false, err
		}
	}
	le.fill(granted, l.conf.lockDelay)
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	now := driver.Now()
	if le.deadline.Reached(now) {
		return nil, false, fmt.Errorf("%w: the grant came %v after its request, with a TTL of %v",
			ErrLost, now.Sub(grant.Start), le.ttl)
	}
	return l.install(le, now)
}

// isRegressed reports whether token was granted before, where last is the greatest token seen.
// With Owner, the store may grant the same lease again, so token may equal last. If others share
// the lock with that owner, token may even be smaller.
func (l *Locker) isRegressed(token, last uint64) bool {
	switch {
	case l.core.info.Fencing == driver.FencingNone:
		return false
	case l.conf.owner != "":
		return token < last && l.conf.exclusive()
	}
	return token <= last
}

// reportRegression tells the Traces that a token went back. It returns an
// error if fencing is required.
func (l *Locker) reportRegression(name string, token, last uint64) error {
	l.conf.traces.regressed.call(&RegressedEvent{Event: Event{Name: name, Backend: l.core.info.Backend, Token: token}, Last: last})
	if l.conf.fencing == driver.FencingNone {
		return nil
	}
	return fmt.Errorf("%w: the store granted %d after %d", ErrRegressed, token, last)
}

// fill stores what the driver granted. The times count from when the driver sent the request, not
// from when the answer came. The hold must not rely on the last part of the driver's TTL, delay.
func (le *lease) fill(granted driver.Lease, delay time.Duration) {
	grant := granted.Grant()
	le.granted, le.tellsWanted = granted, grant.TellsWanted
	le.nextToken, le.endToken = grant.Token+1, grant.Token+uint64(max(grant.Tokens, 1))
	if grant.TTL > 0 {
		le.ttl = grant.TTL
	}
	le.ttl -= delay
	le.extend(grant.Start)
}

// install makes a granted lease a hold and adds it to the keeper. joined reports that the lease
// belongs to an existing hold instead.
func (l *Locker) install(le *lease, now driver.Instant) (_ *hold, joined bool, _ error) {
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isClosed:
		return nil, false, ErrClosed
	case le.lostErr != nil: // the store ended the lease before its grant arrived here
		return nil, false, le.lostErr
	}
	if h := c.mergeLocked(le); h != nil {
		return h, true, nil
	}
	h := le.newHold(l, le.nextToken-1, now)
	if l.conf.owner != "" && !l.conf.detached {
		c.ownerHolds[c.ownerHolds.key(h)] = h
	}
	c.watermarks.raise(le.name, le.endToken-1)
	switch {
	case le.queue == nil:
	case l.conf.exclusive():
		le.queue.held = true
	default:
		le.queue.heldInStore = true // until the next head asks
		le.queue = nil
	}
	heap.Push(&c.keeper.heap, le)
	if c.info.RenewsAll {
		c.keeper.all.add(le)
	}
	c.scheduleLocked(le)
	return h, false, nil
}

// mergeLocked adds a Lock to the hold that the owner of le got during the request for le, and
// returns the hold. It returns nil if there is none. The store has one lease for both, with the
// times of the later request.
func (c *core) mergeLocked(le *lease) *hold {
	h := c.ownerHolds[ownerKey{le.owner, le.name}]
	// With another token, le belongs to a new hold. The old hold will be reported as lost.
	if h == nil || h.token != le.nextToken-1 {
		return nil
	}
	existing := h.lease
	existing.granted, existing.ttl = le.granted, le.ttl
	existing.extend(le.granted.Grant().Start)
	le.mergedInto = existing
	h.lockCount++
	c.scheduleLocked(existing)
	return h
}

// newHold returns a new hold, and makes it the current one of the lease.
func (le *lease) newHold(l *Locker, token uint64, now driver.Instant) *hold {
	h := &le.firstHold
	if le.hold != nil {
		h = new(hold)
	}
	h.locker, h.lease, h.token, h.since, h.lockCount = l, le, token, now, 1
	if l.conf.maxHold > 0 {
		h.until = now.Add(l.conf.maxHold)
	}
	if ttl := l.conf.ttl; l.conf.noRenewal {
		if end := le.confirmedAt.Add(ttl - safetyOf(ttl)); h.until.IsZero() || end.Before(h.until) {
			h.until, h.isFixed = end, true
		}
	}
	le.hold = h
	return h
}

// watermarks are the greatest tokens seen, by name.
type watermarks map[string]uint64

// maxWatermarks bounds the number of watermarks. At this size, each new name replaces an arbitrary
// other name.
const maxWatermarks = 1 << 14

func (w watermarks) raise(name string, token uint64) {
	if last, known := w[name]; known || len(w) < maxWatermarks {
		w[name] = max(last, token)
		return
	}
	for other := range w {
		delete(w, other)
		break
	}
	w[name] = token
}
