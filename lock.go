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
	parent  context.Context // of the Acquire, for its values
	cleanup runtime.Cleanup // reports a leak; stopped by Release

	releasing sync.Once
	result    error // of the first Release
	released  atomic.Bool

	opening sync.Once // by the first call of Context
	opened  context.Context
	scope   atomic.Pointer[scope]
}

// A hold is what the locks of one acquisition share: more than one if it was re-entered.
type hold struct {
	locker *Locker
	lease  *lease
	token  uint64
	since  driver.Instant
	until  driver.Instant // the end that MaxHold sets; zero if there is none

	// Guarded by core.mu.
	count  int           // locks not yet released
	cause  error         // nil while the hold lives; then ErrReleased, or what matches ErrLost
	scopes []*scope      // to be ended with the hold
	lost   chan struct{} // made on demand; closed when the hold is lost, after its scopes
	told   bool          // lost is closed, or would be

	after  chan struct{} // closed once the contexts of the hold before have ended; nil if there is nothing to wait for
	unseen bool          // its waiter has not taken it yet, and may give up: then nobody ever had it, and no trace is told; guarded by core.mu
}

// A scope is a context that ends with a hold.
type scope struct {
	holds  []*hold
	cancel context.CancelCauseFunc
}

// newLock makes the handle of a hold, which counts as one of its locks already.
func (l *Locker) newLock(ctx context.Context, h *hold) *Lock {
	lock := &Lock{hold: h, parent: ctx}
	if l.conf.trackLeaks {
		leak := leaked{hold: h, stack: debug.Stack()}
		lock.cleanup = runtime.AddCleanup(lock, func(l leaked) { go l.report() }, leak)
	}
	return lock
}

// leaked is a hold whose Lock was collected without Release. Neither it nor the hold refers to the Lock.
type leaked struct {
	hold  *hold
	stack []byte
}

func (l leaked) report() {
	h := l.hold
	h.locker.conf.traces.leaked.tell(&Event{
		Name: h.lease.name, Backend: h.locker.core.info.Backend, Token: h.token, Held: driver.Now().Sub(h.since), Stack: l.stack,
	})
	_ = h.leave() // told to the traces
}

// Name is the lock's name as the store has it, [Prefix] included.
func (l *Lock) Name() string { return l.hold.lease.name }

// Token is the fencing token: greater than that of every earlier hold of the same name. Give it to the resource with
// each request, and let the resource refuse a token below the greatest that it has seen. It is 0 if, and only if, the
// backend has none ([driver.FencingNone]). Re-entering does not change it.
func (l *Lock) Token() uint64 { return l.hold.token }

// Owner is the id under which the store knows the holder. Holds that were handed over within the process share one, and the
// store knows them by the token of the first. Whoever knows it can release the lock, so it does not belong into logs.
func (l *Lock) Owner() string { return l.hold.lease.owner }

// File keeps the lock taken when a child process inherits it (see [os/exec.Cmd.ExtraFiles]), until the last process that
// has it is gone. It is nil without [Inheritable], and where the backend can't do it. Don't close it.
func (l *Lock) File() *os.File {
	c := l.hold.locker.core
	c.mu.Lock()
	granted := l.hold.lease.granted // merge may replace it
	c.mu.Unlock()
	return granted.Grant().File
}

// Validity is how long the hold may still be relied on if no further renewal succeeds. It is not positive once the hold
// has ended. It shrinks while renewals fail, which is the time to save what can be saved.
func (l *Lock) Validity() time.Duration {
	c := l.hold.locker.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.hold.cause != nil {
		return 0
	}
	return max(0, l.hold.deadline().Left(driver.Now()))
}

// Context is done when the hold ends: with cause [ErrReleased], or with one that matches [ErrLost] and says why. It
// carries the values of Acquire's context, but not its end, and it carries the hold, for [Reentrant].
//
// On loss it ends before the store can give the lock to somebody else, by the margin that the clocks' drift asks for.
func (l *Lock) Context() context.Context {
	l.opening.Do(func() {
		var s *scope
		l.opened, s = l.hold.open(context.WithoutCancel(l.parent))
		l.scope.Store(s)
		if l.released.Load() { // or Release sees the scope
			s.end(ErrReleased)
		}
	})
	return l.opened
}

// Lost is closed if, and only if, the hold ends before Release.
func (l *Lock) Lost() <-chan struct{} {
	h := l.hold
	h.locker.core.mu.Lock()
	defer h.locker.core.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.told {
			close(h.lost)
		}
	}
	return h.lost
}

// Wanted is closed once another process waits for the lock. It is nil where the backend can't tell.
func (l *Lock) Wanted() <-chan struct{} { return l.hold.lease.wanted }

// Release gives the lock up. It may be called more than once and from any goroutine; later calls return the first
// result.
//
// Release does not depend on the context that the lock was acquired with, so "defer lock.Release()" is right even after
// a cancellation. If the backend does not answer within [ReleaseTimeout], Release answers [ErrUnavailable] and the lock
// lapses by itself within the TTL.
//
// An error matching [ErrLost] means that the hold had ended before: somebody else may have held the lock in the
// meantime.
func (l *Lock) Release() error {
	l.releasing.Do(func() {
		l.cleanup.Stop()
		l.result = l.hold.leave()
		l.released.Store(true)
		if s := l.scope.Load(); s != nil {
			s.end(ErrReleased)
		}
	})
	return l.result
}

// open derives a context from parent that carries the hold and ends with it.
func (h *hold) open(parent context.Context) (context.Context, *scope) {
	ctx, cancel := context.WithCancelCause(carry(parent, h))
	s := &scope{cancel: cancel}
	s.endWith(h)
	return ctx, s
}

// endWith makes h end the scope, at once if it has ended.
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

// end ends the scope before its holds do.
func (s *scope) end(cause error) {
	for _, h := range s.holds {
		c := h.locker.core
		c.mu.Lock()
		if i := slices.Index(h.scopes, s); i >= 0 {
			h.scopes = slices.Delete(h.scopes, i, i+1)
		}
		if h.isLost() { // who ended it is about to end the scope
			cause = h.cause
		}
		c.mu.Unlock()
	}
	s.cancel(cause)
}

// settle waits until a hold that was handed over is all that there is of its lease.
func (h *hold) settle() {
	if h.after != nil {
		<-h.after // not for long: nobody is called before it is closed
	}
}

// over says why the hold is over, also if the keeper has not seen it yet, or is nil. It is called with core.mu held.
func (h *hold) over() error {
	if now := driver.Now(); h.cause == nil && h.deadline().Reached(now) {
		return h.lease.overdue(now)
	}
	return h.cause
}

// isLost is called with core.mu held.
func (h *hold) isLost() bool {
	return h.cause != nil && h.cause != ErrReleased //nolint:errorlint // set by leave, never wrapped
}

// deadline is when the hold ends if no renewal succeeds. It is called with core.mu held.
func (h *hold) deadline() driver.Instant {
	if d := h.lease.deadline; h.until.IsZero() || d.Before(h.until) {
		return d
	}
	return h.until
}

// leave gives up one lock of the hold, and with the last one the hold.
func (h *hold) leave() error {
	c, l, le := h.locker.core, h.locker, h.lease
	c.mu.Lock()
	confirmed := c.confirm(h)
	now := driver.Now()
	var over endings
	if h.cause == nil && h.deadline().Reached(now) { // the keeper is about to see it
		over = append(over, c.lose(le, le.overdue(now)))
	}
	h.count--
	if h.count > 0 {
		lost := h.lossError()
		c.mu.Unlock()
		over.run()
		return lost
	}
	if h.isLost() {
		lost := h.lossError()
		c.mu.Unlock()
		over.run()
		// The store may still keep the lock for us. Others need not wait until it lapses, unless that is the point.
		if l.conf.lockDelay == 0 {
			h.releaseLost()
		}
		return lost
	}
	queued := le.gate.waiting()
	ending := h.end(ErrReleased)
	var next *hold
	if confirmed {
		next = c.handOver(le, now, len(ending.scopes) > 0)
	}
	if next == nil {
		c.keeper.remove(le)
		le.gate.note(le)
	}
	c.mu.Unlock()
	ending.run()
	if next != nil && next.after != nil {
		close(next.after)
	}
	return h.giveBack(now, next != nil, queued)
}

// giveBack ends what leave began: it tells the store, unless the lease went on to another hold.
func (h *hold) giveBack(now driver.Instant, local bool, queued int) error {
	c, l, le := h.locker.core, h.locker, h.lease
	var err error
	var asked time.Time
	if !local {
		if asked, err = c.release(le.granted, l.conf.releaseTimeout); err != nil {
			err = l.fail("release", le.name, err)
		}
		if le.gate != nil {
			c.passTurn(le.gate)
		}
	}
	if len(l.conf.traces.released) > 0 && !h.unseen {
		l.conf.traces.released.tell(&Event{
			Name: le.name, Backend: c.info.Backend, Token: h.token, Held: now.Sub(h.since), Asked: asked, Local: local, Queued: queued, Err: err,
		})
	}
	return err
}

// lossError is the error of an operation on a hold that was lost, or nil. It is called with core.mu held.
func (h *hold) lossError() error {
	if !h.isLost() {
		return nil
	}
	return h.locker.fail("release", h.lease.name, h.cause)
}

// end marks the hold as ended. It is called with core.mu held; the caller runs the result without.
func (h *hold) end(cause error) ending {
	h.cause = cause
	if h.locker.conf.owner != "" {
		h.locker.core.owned.remove(h)
	}
	e := ending{hold: h, scopes: h.scopes, cause: cause}
	h.scopes = nil
	return e
}

// An ending is what has to be done outside the mutex when a hold has ended.
type ending struct {
	hold   *hold
	cause  error
	scopes []*scope
}

// run ends the contexts first: who is woken by Lost finds the cause in them.
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
	h.told = true
	if h.lost != nil {
		close(h.lost)
	}
	h.lapseLater()
}

// lapseLater releases the lease of a lost hold at the end of its TTL, if the tenure is a session.
// The session lives on, and the lease with it, if nobody calls Release, or if Release does not ask
// the store because of a LockDelay. It is called with core.mu held, after the holder has been told.
func (h *hold) lapseLater() {
	c, le := h.locker.core, h.lease
	if c.info.Tenure != driver.TenureSession || c.isClosed {
		return
	}
	end := le.start.Add(le.ttl + h.locker.conf.lockDelay)
	time.AfterFunc(end.Left(driver.Now()), h.releaseLost)
}

// releaseLost releases the lease of a lost hold, unless the store has ended the lease, or a living
// hold of the same owner relies on it.
func (h *hold) releaseLost() {
	c, le := h.locker.core, h.lease
	c.mu.Lock()
	ended := le.ended != nil
	c.mu.Unlock()
	if !ended && !c.isOwned(le.owner, le.name) {
		_, _ = c.release(le.granted, h.locker.conf.releaseTimeout)
	}
}

// endings are those of lost holds.
type endings []ending

// run ends all contexts before any trace is told, and does not wait for the traces.
func (es endings) run() {
	for _, e := range es {
		e.run()
	}
	for _, e := range es {
		h := e.hold
		if l := h.locker; len(l.conf.traces.lost) > 0 && !h.unseen {
			go l.conf.traces.lost.tell(&Event{
				Name: h.lease.name, Backend: l.core.info.Backend, Token: h.token, Held: driver.Now().Sub(h.since), Loss: lossOf(e.cause), Err: e.cause,
			})
		}
	}
}

// overdue says why a lease whose time has come is over.
func (le *lease) overdue(now driver.Instant) error {
	if until := le.hold.until; !until.IsZero() && until.Reached(now) {
		return &lossError{fmt.Errorf("%w: MaxHold of %v is over", ErrLost, le.hold.locker.conf.maxHold), LossMaxHold}
	}
	if le.trouble != nil {
		return &lossError{fmt.Errorf("%w: its lease could not be renewed in time: %w", ErrLost, le.trouble), LossExpired}
	}
	return &lossError{fmt.Errorf("%w: its lease was not renewed in time", ErrLost), LossExpired}
}

// A lossError is the cause of a loss, with its kind for the traces.
type lossError struct {
	error
	loss Loss
}

func (e *lossError) Unwrap() error { return e.error }

// lossOf is the kind of a loss with that cause.
func lossOf(cause error) Loss {
	if e, ok := errors.AsType[*lossError](cause); ok {
		return e.loss
	}
	return ""
}
