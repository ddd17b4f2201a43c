package snib

// Stage 6, release: a hold ends when its last Lock is released. Its lease goes to the next local
// waiter or back to the store.

import (
	"context"
	"errors"
	"time"

	"github.com/sniblock/snib/driver"
)

// leave releases one Lock of the hold. The release of the last Lock ends the hold.
func (c *core) leave(h *hold) error {
	l, le, now := h.locker, h.lease, driver.Now()
	ctx := c.releases.Context(time.Now())
	c.mu.Lock()
	confirmed, now := c.confirmLocked(h, now)
	var ended endings
	if h.cause == nil && h.deadline().Reached(now) { // the keeper is about to notice
		ended = append(ended, c.loseLocked(le, le.expiryError(now)))
	}
	h.lockCount--
	if isLast := h.lockCount == 0; !isLast || h.isLost() {
		var err error
		if h.isLost() {
			err = l.wrapError("release", le.name, h.cause)
		}
		c.mu.Unlock()
		ended.run()
		// The store may still keep the lock for us. Release it, so that others need not wait
		// until it lapses, unless a LockDelay asks for that.
		if isLast && l.conf.lockDelay == 0 && !h.ranOut() {
			c.releaseLost(h)
		}
		return err
	}
	queued := le.queue.waiterCount()
	ending := h.end(ErrReleased)
	var next *hold
	if confirmed {
		next = c.handOverLocked(le, now, len(ending.scopes) > 0)
	}
	if next == nil {
		c.keeper.remove(le)
		le.queue.recordUse(le)
	}
	c.mu.Unlock()
	ending.run()
	if next != nil && next.prevDone != nil {
		close(next.prevDone)
	}
	return c.completeRelease(ctx, h, now, next != nil, queued)
}

// completeRelease completes the release of h. If local is true, the lease has been handed over to
// another hold. Otherwise completeRelease releases the lease in the store, and makes
// the next waiter the head of the queue. The context bounds the whole release.
func (c *core) completeRelease(ctx context.Context, h *hold, now driver.Instant, local bool, queued int) error {
	l, le := h.locker, h.lease
	var err error
	var sentAt time.Time
	if !local {
		if sentAt, err = c.releaseLease(ctx, le.granted); err != nil {
			err = l.wrapError("release", le.name, withUnreleased(err))
		}
		if le.queue != nil {
			c.advance(le.queue)
		}
	}
	if len(l.conf.traces.released) > 0 && !h.unaccepted {
		e := ReleasedEvent{Event: eventOf(h), Held: now.Sub(h.since), Asked: sentAt, Local: local, Queued: queued, Err: err}
		if l.conf.detached && errors.Is(err, ErrLost) { // it has ended elsewhere: see endings.run
			e.Err = nil
		}
		l.conf.traces.released.call(&e)
	}
	return err
}

// withUnreleased adds ErrUnreleased to the error of a release, unless the hold had ended before.
func withUnreleased(err error) error {
	if errors.Is(err, ErrLost) {
		return asLoss(LossRefused, err)
	}
	return &unreleasedError{begun{err}}
}

// An unreleasedError is the error of a release that was not confirmed.
type unreleasedError struct{ begun }

func (e *unreleasedError) Error() string { return ErrUnreleased.Error() + ": " + e.reason.Error() }

func (e *unreleasedError) Unwrap() error { return ErrUnreleased }
