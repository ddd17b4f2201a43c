package snib

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Lock is one hold on a lock, from Acquire to Release. It is safe for concurrent use.
type Lock struct {
	hold    *hold
	parent  context.Context // passed to Acquire; used for its values
	cleanup runtime.Cleanup // reports a leak; Release stops it

	releaseOnce sync.Once
	releaseErr  error // result of the first Release
	released    atomic.Bool

	ctxOnce sync.Once // guards the creation of ctx and scope by Context
	ctx     context.Context
	scope   atomic.Pointer[scope]
}

// A hold is the state shared by the Locks of one acquisition. There is more than one Lock if
// others joined the hold, by Reentrant or Owner.
type hold struct {
	locker *Locker
	lease  *lease
	token  uint64
	since  driver.Instant
	until  driver.Instant // the end set by MaxHold, or zero

	// Guarded by core.mu.
	lockCount    int           // Locks not yet released
	cause        error         // nil while the hold lives; then ErrReleased, or matches ErrLost
	scopes       []*scope      // end with the hold
	lost         chan struct{} // made on demand; closed after the scopes when the hold is lost
	lossSignaled bool          // lost is closed, or would be if it had been made

	// prevDone is closed when the contexts of the previous hold of the lease have ended. It is
	// nil if there is nothing to wait for.
	prevDone chan struct{}

	// unaccepted reports that the hold was handed to a waiter that has not accepted it yet. If
	// the waiter gives up, nobody ever had the hold, and no Trace is called. Guarded by core.mu.
	unaccepted bool
}

// A scope is a context that ends with the first of its holds.
type scope struct {
	holds  []*hold
	cancel context.CancelCauseFunc
}

// newLock returns a Lock for h. The caller has already counted it in h.lockCount.
func (l *Locker) newLock(ctx context.Context, h *hold) *Lock {
	lock := &Lock{hold: h, parent: ctx}
	if l.conf.trackLeaks {
		leak := leakedHold{hold: h, stack: debug.Stack()}
		lock.cleanup = runtime.AddCleanup(lock, func(l leakedHold) { go l.report() }, leak)
	}
	return lock
}

// A leakedHold is a hold whose Lock was garbage-collected without Release. Neither it nor
// the hold may refer to the Lock.
type leakedHold struct {
	hold  *hold
	stack []byte
}

// report tells the Traces of the leak and releases the hold.
func (l leakedHold) report() {
	h := l.hold
	h.locker.conf.traces.leaked.call(LeakedEvent{Event: h.event(), Held: driver.Now().Sub(h.since), Stack: l.stack})
	_ = h.leave() // reported to the Traces
}

// Name returns the lock's name in the store, including [Prefix].
func (l *Lock) Name() string { return l.hold.lease.name }

// Token returns the fencing token. It is greater than that of every earlier hold of the same
// name. Send it to the resource with each request, and let the resource refuse a token that is
// smaller than the greatest it has seen. The token is 0 if, and only if, the backend has none
// ([driver.FencingNone]). Re-entering does not change it.
func (l *Lock) Token() uint64 { return l.hold.token }

// Owner returns the id under which the store knows the holder. Holds that were handed over within
// the process share one id, and the store knows them by the token of the first. Anyone who knows
// the id can release the lock, so do not log it.
func (l *Lock) Owner() string { return l.hold.lease.owner }

// File returns a file that keeps the lock taken while a child process inherits it (see
// [os/exec.Cmd.ExtraFiles]), until the last process that has it is gone. It is nil without
// [Inheritable], and where the backend does not support it. Do not close it.
func (l *Lock) File() *os.File {
	c := l.hold.locker.core
	c.mu.Lock()
	granted := l.hold.lease.granted // merge may replace it
	c.mu.Unlock()
	return granted.Grant().File
}

// Validity returns how long the hold may still be relied on if no further renewal
// succeeds. It is 0 once the hold has ended. It shrinks while renewals fail; use that
// time to save what can be saved.
func (l *Lock) Validity() time.Duration {
	c := l.hold.locker.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.hold.cause != nil {
		return 0
	}
	return max(0, l.hold.deadline().Left(driver.Now()))
}

// Context returns a context that is done when the hold ends. Its cause is [ErrReleased], or an
// error that matches [ErrLost] and says why. It carries the values of Acquire's context, but not
// its cancellation, and it carries the hold, for [Reentrant].
//
// If the hold is lost, the context ends before the store can give the lock to somebody else,
// by a margin that allows for clock drift. The exception is a lease that the store itself
// has ended, for example by force.
func (l *Lock) Context() context.Context {
	l.ctxOnce.Do(func() {
		var s *scope
		l.ctx, s = l.hold.newContext(context.WithoutCancel(l.parent))
		l.scope.Store(s)
		if l.released.Load() { // otherwise Release sees the scope
			s.end(ErrReleased)
		}
	})
	return l.ctx
}

// Lost returns a channel that is closed if, and only if, the hold ends before Release.
func (l *Lock) Lost() <-chan struct{} {
	h := l.hold
	h.locker.core.mu.Lock()
	defer h.locker.core.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.lossSignaled {
			close(h.lost)
		}
	}
	return h.lost
}

// Wanted returns a channel that is closed once another process waits for the lock. It is nil
// where the backend can't tell.
func (l *Lock) Wanted() <-chan struct{} { return l.hold.lease.wanted }

// Release gives the lock up. It may be called more than once and from any goroutine; later
// calls return the first result.
//
// Release does not depend on the context that the lock was acquired with, so a deferred Release
// is right even after a cancellation. If the backend does not answer within [ReleaseTimeout],
// Release returns [ErrUnavailable], and the lock lapses by itself within the TTL.
//
// An error that matches [ErrLost] means that the hold had ended before: somebody else may have
// held the lock in the meantime.
func (l *Lock) Release() error {
	l.releaseOnce.Do(func() {
		l.cleanup.Stop()
		l.releaseErr = l.hold.leave()
		l.released.Store(true)
		if s := l.scope.Load(); s != nil {
			s.end(ErrReleased)
		}
	})
	return l.releaseErr
}

// newContext derives a context from parent that carries the hold and ends with it.
func (h *hold) newContext(parent context.Context) (context.Context, *scope) {
	ctx, cancel := context.WithCancelCause(carry(parent, h))
	s := &scope{cancel: cancel}
	s.endWith(h)
	return ctx, s
}

// endWith makes the scope end with h, or at once if h has ended.
func (s *scope) endWith(h *hold) {
	c := h.locker.core
	c.mu.Lock()
	s.holds = append(s.holds, h)
	cause := h.cause
	if cause == nil {
		h.scopes = append(h.scopes, s)
	}
	c.mu.Unlock()
	if cause != nil {
		s.cancel(cause)
	}
}

// end ends the scope. If one of its holds is lost, the cause of that loss replaces cause.
func (s *scope) end(cause error) {
	for _, h := range s.holds {
		c := h.locker.core
		c.mu.Lock()
		if i := slices.Index(h.scopes, s); i >= 0 {
			h.scopes = slices.Delete(h.scopes, i, i+1)
		}
		if h.isLost() { // the loss is about to end the scope, too
			cause = h.cause
		}
		c.mu.Unlock()
	}
	s.cancel(cause)
}

// awaitPrevious waits until the contexts of the previous hold of the lease have ended.
func (h *hold) awaitPrevious() {
	if h.prevDone != nil {
		<-h.prevDone // not for long: no callback runs before it is closed
	}
}

// endCause returns why the hold is over, even if the keeper has not noticed yet, or nil.
// It is called with core.mu held.
func (h *hold) endCause() error {
	if now := driver.Now(); h.cause == nil && h.deadline().Reached(now) {
		return h.lease.expiryError(now)
	}
	return h.cause
}

// isLost reports whether the hold ended before Release. It is called with core.mu held.
func (h *hold) isLost() bool {
	return h.cause != nil && h.cause != ErrReleased //nolint:errorlint // set by leave, never wrapped
}

// deadline returns when the hold ends if no renewal succeeds. It is called with core.mu held.
func (h *hold) deadline() driver.Instant {
	if d := h.lease.deadline; h.until.IsZero() || d.Before(h.until) {
		return d
	}
	return h.until
}

// leave gives up one Lock of the hold, and with the last one the hold.
func (h *hold) leave() error {
	c, l, le := h.locker.core, h.locker, h.lease
	c.mu.Lock()
	confirmed := c.confirm(h)
	now := driver.Now()
	var ended endings
	if h.cause == nil && h.deadline().Reached(now) { // the keeper is about to notice
		ended = append(ended, c.lose(le, le.expiryError(now)))
	}
	h.lockCount--
	if h.lockCount > 0 {
		err := h.releaseError()
		c.mu.Unlock()
		ended.run()
		return err
	}
	if h.isLost() {
		err := h.releaseError()
		c.mu.Unlock()
		ended.run()
		// The store may still keep the lock for us. Release it, so that others need not wait
		// until it lapses, unless a LockDelay asks for that.
		if l.conf.lockDelay == 0 {
			h.releaseLost()
		}
		return err
	}
	queued := le.queue.waiterCount()
	ending := h.end(ErrReleased)
	var next *hold
	if confirmed {
		next = c.handOver(le, now, len(ending.scopes) > 0)
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
	return h.completeRelease(now, next != nil, queued)
}

// completeRelease ends what leave began. Unless the lease went on to another hold, it releases
// the lease in the store and makes the next waiter the head of the queue.
func (h *hold) completeRelease(now driver.Instant, local bool, queued int) error {
	c, l, le := h.locker.core, h.locker, h.lease
	var err error
	var sentAt time.Time
	if !local {
		if sentAt, err = c.release(le.granted, l.conf.releaseTimeout); err != nil {
			err = l.wrapError("release", le.name, err)
		}
		if le.queue != nil {
			c.advance(le.queue)
		}
	}
	if len(l.conf.traces.released) > 0 && !h.unaccepted {
		l.conf.traces.released.call(ReleasedEvent{Event: h.event(), Held: now.Sub(h.since), Asked: sentAt, Local: local, Queued: queued, Err: err})
	}
	return err
}

// event returns what the events of the hold have in common.
func (h *hold) event() Event {
	return Event{Name: h.lease.name, Backend: h.locker.core.info.Backend, Token: h.token}
}

// releaseError returns the error of releasing a hold that was lost, or nil.
// It is called with core.mu held.
func (h *hold) releaseError() error {
	if !h.isLost() {
		return nil
	}
	return h.locker.wrapError("release", h.lease.name, h.cause)
}

// end marks the hold as ended. It is called with core.mu held; the
// caller runs the result without it.
func (h *hold) end(cause error) ending {
	h.cause = cause
	if h.locker.conf.owner != "" {
		h.locker.core.ownerHolds.remove(h)
	}
	e := ending{hold: h, scopes: h.scopes, cause: cause}
	h.scopes = nil
	return e
}

// An ending is the work left when a hold has ended, which is done without core.mu.
type ending struct {
	hold   *hold
	cause  error // nil while the hold lives; then ErrReleased, or matches ErrLost
	scopes []*scope
}

// run ends the contexts first, so that a goroutine woken by Lost finds the cause in them.
func (e ending) run() {
	for _, s := range e.scopes {
		s.cancel(e.cause)
	}
	if e.cause == ErrReleased { //nolint:errorlint // set by leave, never wrapped
		return
	}
	h := e.hold
	h.locker.core.mu.Lock()
	defer h.locker.core.mu.Unlock()
	h.lossSignaled = true
	if h.lost != nil {
		close(h.lost)
	}
	h.releaseAtExpiry()
}

// releaseAtExpiry schedules the release of a lost hold's lease for the end of its TTL and
// LockDelay, if the tenure is a session. Otherwise the lease would live on with the session if
// nobody calls Release, or if Release skips the store because of a LockDelay. It is called with
// core.mu held, after the holder was told of the loss.
func (h *hold) releaseAtExpiry() {
	c, le := h.locker.core, h.lease
	if c.info.Tenure != driver.TenureSession || c.isClosed {
		return
	}
	end := le.confirmedAt.Add(le.ttl + h.locker.conf.lockDelay)
	time.AfterFunc(end.Left(driver.Now()), h.releaseLost)
}

// releaseLost releases the lease of a lost hold, unless the store has ended the lease, or a
// living hold of the same owner relies on it.
func (h *hold) releaseLost() {
	c, le := h.locker.core, h.lease
	c.mu.Lock()
	ended := le.lostErr != nil
	c.mu.Unlock()
	if !ended && !c.hasOwnerHold(le.owner, le.name) {
		_, _ = c.release(le.granted, h.locker.conf.releaseTimeout)
	}
}

// endings are those of lost holds.
type endings []ending

// run ends all contexts before it calls any Trace, and does not wait for the Traces.
func (es endings) run() {
	for _, e := range es {
		e.run()
	}
	for _, e := range es {
		h := e.hold
		if l := h.locker; len(l.conf.traces.lost) > 0 && !h.unaccepted {
			go l.conf.traces.lost.call(LostEvent{Event: h.event(), Held: driver.Now().Sub(h.since), Loss: lossOf(e.cause), Err: e.cause})
		}
	}
}

// expiryError returns why a lease that has reached its deadline is over.
func (le *lease) expiryError(now driver.Instant) error {
	if until := le.hold.until; !until.IsZero() && until.Reached(now) {
		return &lossError{fmt.Errorf("%w: MaxHold of %v is over", ErrLost, le.hold.locker.conf.maxHold), LossMaxHold}
	}
	if le.renewErr != nil {
		return &lossError{fmt.Errorf("%w: its lease could not be renewed in time: %w", ErrLost, le.renewErr), LossExpired}
	}
	return &lossError{fmt.Errorf("%w: its lease was not renewed in time", ErrLost), LossExpired}
}

// A lossError is the cause of a loss, with its kind for the Traces.
type lossError struct {
	error
	loss Loss
}

func (e *lossError) Unwrap() error { return e.error }

// lossOf returns the kind of loss of a cause, or "".
func lossOf(cause error) Loss {
	if e, ok := errors.AsType[*lossError](cause); ok {
		return e.loss
	}
	return ""
}
