package snib

import (
	"context"
	"sync"
	"time"
)

// A deadline is a context that ends when its time has come, as that of context.WithDeadline does. Until somebody wants to be
// woken it has no timer: most calls to a store are over long before.
type deadline struct {
	parent context.Context
	at     time.Time

	mu   sync.Mutex
	err  error           // why it is over, if that was seen before full was made
	full context.Context // with a timer; made by the first Done
	stop context.CancelFunc
}

// within returns a context that ends with parent, or after so long.
func within(parent context.Context, long time.Duration) *deadline {
	return &deadline{parent: parent, at: time.Now().Add(long)}
}

// end cancels the context, and frees what it has.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.full != nil:
		d.stop()
	case d.err == nil:
		d.err = context.Canceled
	}
}

// Deadline implements [context.Context].
func (d *deadline) Deadline() (time.Time, bool) {
	if at, ok := d.parent.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

// Done implements [context.Context].
func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.full != nil:
	case d.err == nil:
		d.full, d.stop = context.WithDeadline(d.parent, d.at)
	default: // what was seen stays, also if the deadline came after the end
		full, stop := context.WithCancelCause(context.WithoutCancel(d.parent))
		stop(d.err)
		d.full, d.stop = full, func() {}
	}
	return d.full.Done()
}

// Err implements [context.Context]: it does not need a timer to know the time.
func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
	case d.full != nil:
		return d.full.Err()
	case d.parent.Err() != nil:
		d.err = d.parent.Err()
	case !time.Now().Before(d.at):
		d.err = context.DeadlineExceeded
	}
	return d.err
}

// Value implements [context.Context]. What package context looks for to derive from this one is there once Done was called.
func (d *deadline) Value(key any) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full == nil {
		return d.parent.Value(key)
	}
	return d.full.Value(key)
}
