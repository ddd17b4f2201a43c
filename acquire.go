package snib

// This file takes an acquisition through the stages that core lists, and reports it to the Traces.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Acquire waits for the lock and takes it. The context bounds the wait only, not
// the hold: see [Lock.Context].
//
// If Acquire returns an error, the caller holds nothing and has no place in
// any queue. The error matches:
//
//   - [ErrHeld] if [MaxWait] ended the wait; it is a *[HeldError]
//   - [ErrNested] if ctx carries a hold on the same name
//   - [ErrInvalid] if the name can't be used
//   - [ErrKind] if the name is in use as another kind of lock
//   - [ErrRegressed] if the fencing token went back
//   - [ErrClosed] if the Locker is closed
//   - [ErrUnavailable] if the store is unavailable, or so slow that grants arrived after their
//     leases were over
//   - Err and [context.Cause] of ctx if its end ended the wait
//   - or it is the backend's own error
//
// While the store is unavailable, Acquire retries for [RetryTimeout], one minute by default, also
// if other goroutines wait for the same name. The time begins with the outage, or with the call of
// Acquire if that is later. While the store has no connection left ([ErrFull]), or grants nothing
// after a restart, Acquire retries for as long as the wait may last. If the wait ends while the
// store is unavailable, the error matches ErrUnavailable and not ErrHeld, and contains the driver's
// last error.
//
// An error matches [context.Canceled] or [context.DeadlineExceeded] only if ctx has ended so.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, ctx, name, false)
}

// TryAcquire is like Acquire but does not wait. If somebody else holds the lock, it returns
// [ErrHeld] at once, as a *[HeldError]. If the store does not answer within 5 seconds, it returns
// [ErrUnavailable].
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, ctx, name, true)
}

// acquire acquires a lock, and reports that to the Traces. The context ctx bounds the wait. caller
// is the context that the user has passed, from which ctx may be derived. With try, or NoWait, it
// does not wait.
func (l *Locker) acquire(ctx, caller context.Context, name string, try bool) (*Lock, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	name = l.conf.prefix + name
	if ctx == nil {
		return nil, l.wrapError("acquire", name, errNilContext())
	}
	began := l.begin(ctx, name)
	h, origin, err := l.acquireHold(ctx, name, try || l.conf.noWait)
	return l.complete(ctx, caller, "acquire", name, began, h, origin, err)
}

// begin tells the Traces that an acquisition begins, and returns the time, which only they need.
func (l *Locker) begin(ctx context.Context, name string) (began driver.Instant) {
	if l.conf.hasTraces {
		e := Event{Name: name, Backend: l.core.info.Backend}
		l.conf.traces.waitStarted.call(&WaitStartedEvent{Event: e, Context: ctx})
		began = driver.Now()
	}
	return began
}

// complete returns the result of an acquisition, the operation op, and tells it to the Traces.
func (l *Locker) complete(ctx, caller context.Context, op, name string, began driver.Instant, h *hold,
	origin holdOrigin, err error) (*Lock, error) {
	var lock *Lock
	var token uint64
	if err == nil {
		lock, token = &Lock{hold: h, parent: ctx}, h.token
		if l.conf.hasTraces && !origin.joined {
			h.noteAcquirer()
		}
	} else {
		err = l.wrapError(op, name, withCallerContext(caller, l.withHeldError(name, err)))
	}
	if l.conf.hasTraces {
		told := false
		defer func() {
			if !told && lock != nil { // a Trace panics: the caller never gets the lock
				_ = lock.Release()
			}
		}()
		e := Event{Name: name, Backend: l.core.info.Backend, Token: token}
		l.conf.traces.waitEnded.call(&WaitEndedEvent{Event: e, Context: ctx, Waited: driver.Now().Sub(began),
			Local: origin.local, Joined: origin.joined, Err: err})
		told = true
	}
	return lock, err
}

// A holdOrigin says how an acquisition got its hold.
type holdOrigin struct {
	local  bool // no request was sent to the store
	joined bool // it added a lock to an existing hold; local is set, too
}

// maxLateGrants is how many grants may come too late in a row before the TTL counts as too short
// for the store.
const maxLateGrants = 10

// acquireHold takes an acquisition through stages 1 to 4, up to its hold. An overloaded store may
// grant a lease that is over when the grant arrives. Nothing has begun then, so an acquisition that
// may wait begins anew.
func (l *Locker) acquireHold(ctx context.Context, name string, noWait bool) (*hold, holdOrigin, error) {
	h, origin, err := l.resolve(ctx, name)
	if h != nil || err != nil {
		return h, origin, err
	}
	ctx, cancel := l.waitContext(ctx, noWait)
	defer cancel()
	for late := 1; ; late++ {
		h, origin, err = l.acquireOnce(ctx, name, noWait)
		switch {
		case !errors.Is(err, errLate) || noWait || late == maxLateGrants:
			return h, origin, err
		case ctx.Err() != nil:
			return nil, origin, driverkit.EndOfWait(context.Cause(ctx), err)
		}
	}
}

// acquireOnce takes an acquisition through stages 2 to 4.
func (l *Locker) acquireOnce(ctx context.Context, name string, noWait bool) (h *hold, _ holdOrigin, err error) {
	p, h, err := l.enqueue(ctx, name, noWait)
	for err != nil && h != nil { // the hold that was handed over has ended, or came too late
		declined := h
		tidyUp(ctx, func() { awaitPrevious(declined); _ = l.core.leave(declined) }) // or it is handed over once more
		h = nil
		if errors.Is(err, ErrLost) && ctx.Err() == nil { // nobody has used it: this wait goes on
			p, h, err = l.enqueue(ctx, name, noWait)
		} else if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if h != nil || err != nil {
		return h, holdOrigin{local: true}, err
	}
	defer func() { l.core.dequeue(p, h != nil && l.conf.exclusive()) }() // also if a Trace panics
	open, end, err := l.core.untilClose(ctx)
	if err != nil {
		return nil, holdOrigin{}, err
	}
	defer end()
	le, granted, err := l.request(open, p, noWait)
	if err == nil {
		h, err = l.install(open, le, granted)
	}
	if err != nil && open.Err() != nil && ctx.Err() == nil {
		err = ErrClosed // whatever the store said last
	}
	return h, holdOrigin{}, err
}

// untilClose returns a context that is done with ctx or with the Locker, and a function that frees
// it. Close waits for that: until then, the driver may have to withdraw a request, or to release a
// lease.
func (c *core) untilClose(ctx context.Context) (context.Context, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c.requests.Add(1)
	c.cancels[ctx] = cancel
	return ctx, func() {
		c.mu.Lock()
		delete(c.cancels, ctx)
		c.mu.Unlock()
		cancel(nil)
		c.requests.Done()
	}, nil
}

// waitContext returns a context that bounds the wait by MaxWait.
func (l *Locker) waitContext(ctx context.Context, noWait bool) (context.Context, context.CancelFunc) {
	if l.conf.maxWait == 0 || noWait {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, l.conf.maxWait, &waitError{after: l.conf.maxWait})
}

// A waitError is the cause with which MaxWait ends a wait.
type waitError struct{ after time.Duration }

func (e *waitError) Error() string { return fmt.Sprintf("waited for %v", e.after) }
