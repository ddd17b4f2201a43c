package snib

// Stage 3, request: the driver acquires the lease from the store.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// request acquires a lease from the driver. It returns the core's lease, which is not filled in
// yet, and what the driver granted.
func (l *Locker) request(ctx context.Context, p place, noWait bool) (*lease, driver.Lease, error) {
	c, q := l.core, p.queue
	req := driver.Request{
		Name: p.name, TTL: l.conf.ttl + l.conf.lockDelay, NoWait: noWait, RetryTimeout: l.conf.retryTimeout,
		Shared: l.conf.shared, Slots: l.conf.slots, MinHold: l.conf.minHold, LockDelay: l.conf.lockDelay, Holder: l.holder(),
	}
	s := l.newStall(ctx, p.name)
	if q != nil || s != nil {
		req.OnWait = func(err error) {
			c.noteAnswer(q, err == nil, err)
			s.note(err)
		}
	}
	// Without Detached, the death of this process would free the lock without the LockDelay.
	req.Detached = l.conf.detached || l.conf.lockDelay > 0 && c.info.Tenure == driver.TenureLease
	c.mu.Lock()
	watermark := c.watermarks[p.name]
	if q != nil && l.conf.allowsHandOver() {
		req.Tokens = q.tokenBlockSize(l)
	}
	c.mu.Unlock()
	le, granted, err := l.send(ctx, req, p, s)
	s.note(nil)
	le.queue, le.watermark = q, watermark
	return le, granted, err
}

// A stall tells the Traces while an acquisition waits for the store and not for a holder. A nil
// stall tells nobody.
type stall struct {
	locker *Locker
	ctx    context.Context // of the acquisition, for its values
	name   string

	mu    sync.Mutex    // the driver may call OnWait from any goroutine
	since time.Time     // zero while the acquisition is not stalled
	told  chan struct{} // closed when the Traces have been told so far; nil before the first time
}

// newStall returns a stall for an acquisition, or nil if no Trace asks for it.
func (l *Locker) newStall(ctx context.Context, name string) *stall {
	if len(l.conf.traces.waitStalled) == 0 && len(l.conf.traces.waitResumed) == 0 {
		return nil
	}
	return &stall{locker: l, ctx: ctx, name: name}
}

// note reports what the store has said: nil for an answer, or why there is none.
func (s *stall) note(err error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	traces, e := &s.locker.conf.traces, Event{Name: s.name, Backend: s.locker.core.info.Backend}
	switch {
	case err != nil && s.since.IsZero():
		s.since = time.Now()
		s.tell(func() { traces.waitStalled.call(&WaitStalledEvent{Event: e, Context: s.ctx, Err: err}) })
	case err == nil && !s.since.IsZero():
		stalled := time.Since(s.since)
		s.since = time.Time{}
		s.tell(func() { traces.waitResumed.call(&WaitResumedEvent{Event: e, Context: s.ctx, Stalled: stalled}) })
	}
}

// tell calls the Traces after the earlier calls, and does not wait for them: the driver may have
// called OnWait with a mutex that its renewals need. The caller must hold s.mu.
func (s *stall) tell(call func()) {
	before, done := s.told, make(chan struct{})
	s.told = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		call()
	}()
}

// holder describes this process, and what keeps its holds alive.
func (l *Locker) holder() driver.Holder {
	h := l.core.holder
	h.Label = l.conf.label
	if l.conf.detached {
		h.Kind = driver.KindDetached
	}
	return h
}

// attempt calls the driver once, under an id that no other attempt has, so that nothing of an
// earlier one can reach what it gets.
func (l *Locker) attempt(ctx context.Context, req driver.Request) (*lease, driver.Lease, error) {
	c := l.core
	le := l.newLease(req.Name, newID())
	req.ID = le.id
	req.OnLost = func(err error) { c.handleLost(le, err) }
	req.OnWanted = func() { c.handleWanted(le) }
	granted, err := c.driver.Acquire(ctx, req)
	return le, granted, err
}

// newLease returns a lease that is not filled in yet, and belongs to no queue.
func (l *Locker) newLease(name, id string) *lease {
	return &lease{
		name: name, id: id, ttl: l.conf.ttl + l.conf.lockDelay, heapIndex: -1,
		noRenewal: l.conf.noRenewal && l.core.info.Tenure == driver.TenureLease,
	}
}

// newID returns the id of a new attempt. Nobody can guess it, and it begins with a letter: other
// programs take a value that begins with a digit for a time.
func newID() string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	var buf [26]byte
	_, _ = rand.Read(buf[:]) // it never fails
	for i, b := range buf {
		buf[i] = alphabet[b%32]
	}
	buf[0] = 's'
	return string(buf[:])
}

// send calls the driver, and returns the lease of its last attempt. While the store is
// unavailable it retries, if the request may wait. The head of a queue continues the outage of
// the heads before it: if that has lasted for RetryTimeout, and for as long as a request may take
// to fail, send returns its error without a request. Outside of a queue, the outage begins with
// this acquisition.
func (l *Locker) send(ctx context.Context, req driver.Request, p place, s *stall) (*lease, driver.Lease, error) {
	if req.NoWait {
		bounded, cancel := context.WithTimeout(ctx, driver.AnswerTimeout)
		defer cancel()
		le, granted, err := l.attempt(bounded, req)
		return le, granted, callerError(ctx, err)
	}
	var own driverkit.Outage
	outage, q := &own, p.queue
	if q != nil {
		outage = &q.outage
		if q.outageErr != nil && outage.IsOver(max(req.RetryTimeout, driver.AnswerTimeout)) {
			return l.newLease(req.Name, ""), nil, q.outageErr
		}
	}
	var last error // of the outage
	for {
		sentAt := time.Now()
		le, granted, err := l.attempt(ctx, req)
		err = callerError(ctx, err)
		if last != nil && err != nil && ctx.Err() != nil && !errors.Is(err, ErrUnavailable) &&
			time.Since(sentAt) < driver.CancelTimeout {
			// The wait ended as the retry began. The driver knows nothing of the outage then.
			return le, nil, fmt.Errorf("%w: %w", last, context.Cause(ctx))
		}
		// The store has answered, or may have: a request that took long may have been queued there.
		if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil && time.Since(sentAt) > driver.AnswerTimeout {
			*outage = driverkit.Outage{}
			if q != nil && q.outageErr != nil && !errors.Is(err, ErrUnavailable) {
				l.core.noteAnswer(q, errors.Is(err, ErrHeld), nil)
			}
			return le, granted, err
		}
		pause, shouldRetry := outage.AgainWithin(req.RetryTimeout, sentAt, err)
		if ctx.Err() != nil {
			return le, nil, err
		}
		if !shouldRetry {
			err = fmt.Errorf("%w; gave up after %v", err, outage.Lasted())
		}
		if !shouldRetry && time.Since(sentAt) >= max(req.RetryTimeout, 2*driver.AnswerTimeout) {
			// The store had queued the request, so it does not tell how long the outage lasts. The
			// next head sends a request of its own.
			l.core.noteAnswer(q, false, nil)
			return le, nil, err
		}
		l.core.noteAnswer(q, false, err)
		if !shouldRetry {
			return le, nil, err
		}
		s.note(err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if ctx.Err() != nil { // also if the pause is over
			return le, nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		last = err
	}
}
