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
// yet, and what the driver granted. q is the queue that the caller is the head of, or nil.
func (l *Locker) request(ctx context.Context, name string, q *nameQueue, noWait bool) (*lease, driver.Lease, error) {
	c := l.core
	le := &lease{name: name, owner: l.newOwner(), ttl: l.conf.ttl + l.conf.lockDelay, queue: q, heapIndex: -1}
	req := driver.Request{
		Name: name, Owner: le.owner, TTL: le.ttl, NoWait: noWait,
		Shared: l.conf.shared, Slots: l.conf.slots, MinHold: l.conf.minHold, LockDelay: l.conf.lockDelay,
		OnLost: func(err error) { c.handleLost(le, err) }, Holder: c.holder,
	}
	req.Holder.Label = l.conf.label
	// Otherwise the death of this process would free the lock without the delay.
	req.Detached = l.conf.lockDelay > 0 && c.info.Tenure == driver.TenureLease
	c.mu.Lock()
	le.watermark = c.watermarks[name]
	if q != nil && l.conf.allowsHandOver() {
		req.Tokens = q.tokenBlockSize(l)
	}
	c.mu.Unlock()
	granted, err := l.send(ctx, req, q)
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
	return l.core.owner + strconv.FormatUint(l.core.serial.Add(1), 36)
}

// send calls the driver. While the store is unavailable it retries, if the request may wait. The
// head of q continues the outage of the heads before it: if that has lasted for RetryTimeout, send
// returns its error without a request, because each request may take seconds to fail. If q is nil,
// the outage begins with this acquisition.
func (l *Locker) send(ctx context.Context, req driver.Request, q *nameQueue) (driver.Lease, error) {
	if req.NoWait {
		bounded := withLazyDeadline(ctx, time.Now().Add(driver.AnswerTimeout))
		defer bounded.cancel()
		granted, err := l.core.driver.Acquire(bounded, req)
		return granted, callerError(ctx, err)
	}
	var own driverkit.Outage
	outage := &own
	if q != nil {
		outage = &q.outage
		if q.outageErr != nil && outage.IsOver() {
			return nil, q.outageErr
		}
	}
	for {
		l.core.setOutageErr(q, nil)
		sentAt := time.Now()
		granted, err := l.core.driver.Acquire(ctx, req)
		err = callerError(ctx, err)
		// The store has answered, or may have: a request that took long may have been queued there.
		if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil && time.Since(sentAt) > driver.AnswerTimeout {
			*outage = driverkit.Outage{}
			return granted, err
		}
		pause, shouldRetry := outage.Again(sentAt, err)
		if ctx.Err() != nil {
			return nil, err
		}
		// A request that took longer than the minute was queued by the store, so it does not
		// tell how long the outage lasts. The next head sends a request of its own.
		if shouldRetry || time.Since(sentAt) < driver.RetryTimeout {
			l.core.setOutageErr(q, err)
		}
		if !shouldRetry {
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
