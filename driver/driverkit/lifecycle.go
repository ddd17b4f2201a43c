// Package driverkit has the common parts of drivers for different stores. It is for authors of
// drivers; programs that use locks do not need it.
//
//   - [Lifecycle] runs the goroutines of a driver until the driver is closed.
//   - [Detached] bounds a call of the server after its caller has given up.
//   - [EndOfWait] makes the error of an acquisition whose caller has given up.
//   - [SaysLost] tells the loss of a hold from a caller that has given up.
//   - [RemoteLease] is a lease that is named by its id, where leases belong to sessions.
//   - [Outage] says when to retry while the store is unavailable.
//   - [Batcher] runs the operations of concurrent callers together.
//   - [Isolate] and [RowError] keep a malformed row from harming other locks.
//
// Package driverkit/rows has the common parts of drivers that keep each lock in one row of a
// database.
package driverkit

import (
	"context"
	"sync"

	"github.com/sniblock/snib/driver"
)

// A Lifecycle is the lifetime of a driver, from [NewLifecycle] to Close. It is safe for concurrent
// use.
type Lifecycle struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	endOnce sync.Once
	startMu sync.Mutex     // held to begin a call, and to end the lifecycle
	calls   sync.WaitGroup // that End waits for
}

// NewLifecycle returns a lifecycle that begins now.
func NewLifecycle() *Lifecycle {
	l := &Lifecycle{}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// Context returns a context that is done when the lifecycle is over, with
// [driver.ErrClosed] as its cause.
func (l *Lifecycle) Context() context.Context { return l.ctx }

// Done returns a channel that is closed when the lifecycle is over.
func (l *Lifecycle) Done() <-chan struct{} { return l.ctx.Done() }

// Over reports whether the lifecycle is over.
func (l *Lifecycle) Over() bool { return l.ctx.Err() != nil }

// Ready returns why a driver can't serve a request, or nil: the cause of ctx if ctx is done, or
// [driver.ErrClosed] if the lifecycle is over.
func (l *Lifecycle) Ready(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case l.Over():
		return driver.ErrClosed
	}
	return nil
}

// During returns a context that is done with ctx or with the lifecycle, whichever is first,
// and a function that releases it.
func (l *Lifecycle) During(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(l.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() { detach(); cancel(nil) }
}

// Go runs fn in a goroutine that End waits for. If the lifecycle is over, Go does
// not run fn and returns false.
func (l *Lifecycle) Go(fn func()) bool {
	ok := l.Begin()
	if ok {
		go func() { defer l.Finish(); fn() }()
	}
	return ok
}

// Begin registers a call that End waits for, until it calls Finish. If the lifecycle is over, Begin
// returns false.
func (l *Lifecycle) Begin() bool {
	l.startMu.Lock()
	defer l.startMu.Unlock()
	if l.Over() {
		return false
	}
	l.calls.Add(1)
	return true
}

// Finish ends a call that Begin has registered.
func (l *Lifecycle) Finish() { l.calls.Done() }

// End ends the lifecycle, calls last unless it is nil, and waits for the goroutines and calls. It
// reports whether this was the first call. Other calls only wait for the first one.
func (l *Lifecycle) End(last func()) (first bool) {
	l.endOnce.Do(func() {
		first = true
		l.startMu.Lock()
		l.cancel(driver.ErrClosed)
		l.startMu.Unlock()
		if last != nil {
			last()
		}
		l.calls.Wait()
	})
	return first
}
