package snib

// Stage 4, install: what the driver granted becomes a hold, unless it comes too late, or has a
// token that went back.

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// install makes a granted lease a hold that the keeper keeps, or releases it.
func (l *Locker) install(ctx context.Context, le *lease, granted driver.Lease) (h *hold, _ error) {
	defer func() { // also if a Trace panics
		if h == nil && granted != nil {
			// If this release fails, the lease lapses by itself.
			tidyUp(ctx, func() { _, _ = l.core.releaseLease(l.core.releases.Context(time.Now()), granted) })
		}
	}()
	return l.checkAndInstall(ctx, le, granted)
}

// checkAndInstall checks what the driver granted, and makes it a hold.
func (l *Locker) checkAndInstall(ctx context.Context, le *lease, granted driver.Lease) (*hold, error) {
	if granted == nil {
		return nil, fmt.Errorf("the driver granted nothing without an error")
	}
	grant := granted.Grant()
	if grant.Start.IsZero() || (grant.Token == 0 && l.core.info.Fencing > driver.FencingNone) {
		return nil, fmt.Errorf("the driver granted a lease without start or token")
	}
	if grant.Token <= le.watermark && l.core.info.Fencing > driver.FencingNone {
		if err := l.reportRegression(le.name, grant.Token, le.watermark); err != nil {
			return nil, err
		}
	}
	le.fill(granted, l.conf.lockDelay)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return l.addHold(le)
}

// errLate means that the lease was over when the answer of the store came.
var errLate = fmt.Errorf("%w: the answer came too late", ErrUnavailable)

// reportRegression tells the Traces that a token went back. It returns an
// error if fencing is required.
func (l *Locker) reportRegression(name string, token, last uint64) error {
	l.conf.traces.regressed.call(&RegressedEvent{Event: Event{Name: name, Backend: l.core.info.Backend, Token: token},
		Last: last})
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

// addHold turns a lease that the store has just confirmed into a hold, and adds it to the keeper.
func (l *Locker) addHold(le *lease) (*hold, error) {
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	now := driver.Now()
	switch {
	case c.isClosed:
		return nil, ErrClosed
	case le.deadline.Reached(now):
		return nil, fmt.Errorf("%w: %v after its request, with a TTL of %v", errLate, now.Sub(le.confirmedAt), le.ttl)
	case le.lostErr != nil: // the store ended the lease before its grant arrived here
		return nil, fmt.Errorf("%w: %v", errLate, le.lostErr) //nolint:errorlint // nothing had begun
	}
	h := le.newHold(l, le.nextToken-1, now)
	c.watermarks.raise(le.name, le.endToken-1)
	switch {
	case le.queue == nil:
	case l.conf.exclusive():
		le.queue.held = le
	default:
		le.queue.heldInStore = true // until the next head asks
		le.queue = nil
	}
	heap.Push(&c.keeper.heap, le)
	if c.info.RenewsAll {
		c.keeper.all.add(le)
	}
	c.scheduleLocked(le)
	return h, nil
}

// newHold returns a new hold, and makes it the current one of the lease.
func (le *lease) newHold(l *Locker, token uint64, now driver.Instant) *hold {
	h := &hold{locker: l, lease: le, token: token, since: now, lockCount: 1}
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
