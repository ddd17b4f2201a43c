package memlock

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver"
)

// A lease is the store's record of a grant.
type lease struct {
	driver   *Driver // that it was granted to
	req      driver.Request
	grant    driver.Grant
	end      driver.Instant
	isWanted bool // OnWanted was called
}

// extend moves the end of the lease. A renewal never shortens it.
func (l *lease) extend(end driver.Instant) {
	if l.end.Before(end) {
		l.end = end
	}
}

// left returns how long the lease still lasts. What MinHold keeps must not end early, so it ends by
// the clock that nobody can set.
func (l *lease) left(now driver.Instant) time.Duration {
	if l.req.Holder.Kind == driver.KindKept {
		return l.end.SubMono(now)
	}
	return l.end.Left(now)
}

// tellWanted calls OnWanted, once.
func (l *lease) tellWanted() {
	if !l.isWanted && l.req.OnWanted != nil {
		l.req.OnWanted()
	}
	l.isWanted = true
}

// tellLost calls OnLost.
func (l *lease) tellLost() {
	if l.req.OnLost != nil {
		l.req.OnLost(driver.ErrLost)
	}
}

// A handle implements [driver.Lease]. It names a lease, which the store looks up in each request:
// what arrives after the end of the lease changes nothing.
type handle struct {
	d        *Driver
	name, id string
	ttl      time.Duration
	grant    driver.Grant
	released bool // guarded by the store's mutex
}

// Grant implements [driver.Lease].
func (h *handle) Grant() driver.Grant { return h.grant }

// ID implements [driver.Lease].
func (h *handle) ID() string { return h.id }

// Release implements [driver.Lease]. It works after Close, too.
func (h *handle) Release(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	h.d.store.update(h.name, func(k *lock, now driver.Instant) {
		switch l := k.lease(h.id); {
		case h.released: // calling it again is harmless
		case l == nil:
			err = driver.ErrLost
		default:
			h.released = true
			k.release(l, now)
		}
	})
	return err
}

// SetHolder implements [driver.Lease].
func (h *handle) SetHolder(ctx context.Context, holder driver.Holder) error {
	return h.d.update(ctx, h.name, func(k *lock, _ driver.Instant) error {
		l := k.lease(h.id)
		if l == nil {
			return driver.ErrLost
		}
		l.req.Holder = holder
		return nil
	})
}
