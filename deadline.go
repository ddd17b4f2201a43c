package snib

import (
	"context"
	"sync"
	"time"
)

// A timeoutContext is a context with a timeout, as [context.WithTimeout] returns. It has no timer
// until somebody calls Done, because most requests to a store are over long before their timeout.
type timeoutContext struct {
	parent   context.Context
	deadline time.Time

	mu          sync.Mutex
	err         error           // why it is done, if noticed before timerCtx was made
	timerCtx    context.Context // has the timer; made by the first call of Done
	cancelTimer context.CancelFunc
}

// withLazyTimeout returns a context that ends with parent or after timeout, whichever is first.
func withLazyTimeout(parent context.Context, timeout time.Duration) *timeoutContext {
	return &timeoutContext{parent: parent, deadline: time.Now().Add(timeout)}
}

// cancel cancels the context and frees its resources.
func (d *timeoutContext) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.timerCtx != nil:
		d.cancelTimer()
	case d.err == nil:
		d.err = context.Canceled
	}
}

// Deadline implements [context.Context].
func (d *timeoutContext) Deadline() (time.Time, bool) {
	if at, ok := d.parent.Deadline(); ok && at.Before(d.deadline) {
		return at, true
	}
	return d.deadline, true
}

// Done implements [context.Context].
func (d *timeoutContext) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.timerCtx != nil:
	case d.err == nil:
		d.timerCtx, d.cancelTimer = context.WithDeadline(d.parent, d.deadline)
	default: // the first error stays, even if the deadline has passed since
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(d.parent))
		cancel(d.err)
		d.timerCtx, d.cancelTimer = ctx, func() {}
	}
	return d.timerCtx.Done()
}

// Err implements [context.Context]. It reads the clock and needs no timer.
func (d *timeoutContext) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
	case d.timerCtx != nil:
		return d.timerCtx.Err()
	case d.parent.Err() != nil:
		d.err = d.parent.Err()
	case !time.Now().Before(d.deadline):
		d.err = context.DeadlineExceeded
	}
	return d.err
}

// Value implements [context.Context]. Package context looks up a value to derive a context from
// this one; that value is present once Done was called.
func (d *timeoutContext) Value(key any) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timerCtx == nil {
		return d.parent.Value(key)
	}
	return d.timerCtx.Value(key)
}
