package snib

// Stage 3, request: the driver acquires the lease from the store.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// request acquires a lease from the driver. It returns the core's lease, which is not filled in
// yet, and what the driver granted.
func (l *Locker) request(ctx context.Context, p place, noWait bool) (*lease, driver.Lease, error) {
	c, name, q := l.core, p.name, p.queue
	le := &lease{name: name, owner: l.newOwner(), ttl: l.conf.ttl + l.conf.lockDelay, queue: q, heapIndex: -1}
	le.noRenewal = l.conf.noRenewal && c.info.Tenure == driver.TenureLease
	req := driver.Request{
		Name: name, Owner: le.owner, TTL: le.ttl, NoWait: noWait, RetryTimeout: l.conf.retryTimeout,
		Shared: l.conf.shared, Slots: l.conf.slots, MinHold: l.conf.minHold, LockDelay: l.conf.lockDelay,
		OnLost: func(err error) { c.handleLost(le, err) }, OnWanted: func() { c.handleWanted(le) }, Holder: c.holder,
	}
	req.UniqueOwner, req.Fencing = l.conf.owner == "", l.conf.fencing
	req.Holder.Label = l.conf.label
	if q != nil {
		req.OnWait = func(err error) { c.noteAnswer(q, err == nil, err) }
	}
	// Without Detached, the death of this process would free the lock without the LockDelay.
	req.Detached = l.conf.detached || l.conf.lockDelay > 0 && c.info.Tenure == driver.TenureLease
	c.mu.Lock()
	le.watermark = c.watermarks[name]
	if q != nil && l.conf.allowsHandOver() {
		req.Tokens = q.tokenBlockSize(l)
	}
	c.mu.Unlock()
	granted, err := l.send(ctx, req, p)
	if err != nil && l.conf.owner != "" {
		c.confirmOwnerHold(le.owner, name)
	}
	return le, granted, err
}

// newOwner returns the owner id of a new acquisition.
func (l *Locker) newOwner() string {
	if l.conf.owner != "" {
		return l.conf.owner
	}
	var buf [48]byte
	return string(strconv.AppendUint(append(buf[:0], l.core.owner...), l.core.serial.Add(1), 36))
}

// send calls the driver. While the store is unavailable it retries, if the request may wait. The
// head of a queue continues the outage of the heads before it: if that has lasted for RetryTimeout,
// send returns its error without a request, because each request may take seconds to fail. Outside
// of a queue, the outage begins with this acquisition.
func (l *Locker) send(ctx context.Context, req driver.Request, p place) (driver.Lease, error) {
	if req.NoWait {
		bounded := withLazyDeadline(ctx, time.Now().Add(driver.AnswerTimeout))
		defer bounded.cancel()
		granted, err := l.core.driver.Acquire(bounded, req)
		return granted, callerError(ctx, err)
	}
	var own driverkit.Outage
	outage, q := &own, p.queue
	if q != nil {
		outage = &q.outage
		if q.outageErr != nil && outage.IsOver(req.RetryTimeout) {
			return nil, q.outageErr
		}
	}
	sentAt := p.since // close enough, and saves a reading of the clock
	if sentAt.IsZero() {
		sentAt = time.Now()
	}
	var last error // of the outage
	for ; ; req.UniqueOwner, sentAt = false, time.Now() {
		granted, err := l.core.driver.Acquire(ctx, req)
		err = callerError(ctx, err)
		if last != nil && err != nil && ctx.Err() != nil && !errors.Is(err, ErrUnavailable) && time.Since(sentAt) < driver.CancelTimeout {
			// The wait ended as the retry began. The driver knows nothing of the outage then.
			return nil, fmt.Errorf("%w: %w", last, context.Cause(ctx))
		}
		// The store has answered, or may have: a request that took long may have been queued there.
		if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil && time.Since(sentAt) > driver.AnswerTimeout {
			*outage = driverkit.Outage{}
			if q != nil && q.outageErr != nil && !errors.Is(err, ErrUnavailable) {
				l.core.noteAnswer(q, errors.Is(err, ErrHeld), nil)
			}
			return granted, err
		}
		pause, shouldRetry := outage.AgainWithin(req.RetryTimeout, sentAt, err)
		if ctx.Err() != nil {
			return nil, err
		}
		if !shouldRetry {
			err = fmt.Errorf("%w; gave up after %v", err, outage.Lasted())
		}
		if !shouldRetry && time.Since(sentAt) >= req.RetryTimeout {
			// The store had queued the request, so it does not tell how long the outage lasts. The
			// next head sends a request of its own.
			l.core.noteAnswer(q, false, nil)
			return nil, err
		}
		l.core.noteAnswer(q, false, err)
		if !shouldRetry {
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if ctx.Err() != nil { // also if the pause is over
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		last = err
	}
}
