package snib

// This file has the hold, which the stages from install to release share, and its end.

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// A hold is the state shared by the Locks of one acquisition. There is more than one Lock if
// others joined the hold, by Reentrant.
type hold struct {
	locker *Locker
	lease  *lease
	token  uint64
	since  driver.Instant
	until  driver.Instant // the end set by MaxHold or NoRenewal, or zero

	isFixed bool // until was set by NoRenewal

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
	// the waiter gives up, nobody ever had the hold, and no Trace is called.
	unaccepted bool

	acquirer *callers // who called Acquire; nil without Traces
}

// callers are return addresses of a goroutine's stack, innermost first; 0 ends the list. They are
// enough to reach the caller of this package.
type callers [16]uintptr

// String returns the function and the line that called this package.
func (c *callers) String() string {
	for frames := runtime.CallersFrames(c[:]); ; {
		frame, more := frames.Next()
		if frame.PC != 0 && !strings.HasPrefix(frame.Function, "github.com/sniblock/snib.") {
			return fmt.Sprintf("%s (%s:%d)", frame.Function, frame.File, frame.Line)
		}
		if !more {
			return "an unknown function"
		}
	}
}

// noteAcquirer records who acquires the hold, for those in this process who wait for it in vain.
// That costs as much as a hand-over within the process, so only Lockers with a Trace do it.
func (h *hold) noteAcquirer() {
	stack := new(callers)
	runtime.Callers(2, stack[:])
	c := h.locker.core
	c.mu.Lock()
	defer c.mu.Unlock()
	h.acquirer = stack
}

// acquiredBy says who acquired the hold, as far as that is known.
func (h *hold) acquiredBy() string {
	if h.acquirer == nil {
		return ""
	}
	return ", acquired by " + h.acquirer.String()
}

// eventOf returns what the events of a hold have in common.
func eventOf(h *hold) Event {
	return Event{Name: h.lease.name, Backend: h.locker.core.info.Backend, Token: h.token}
}

// deadline returns when the hold ends if no renewal succeeds.
func (h *hold) deadline() driver.Instant {
	h.lease.refresh()
	if d := h.lease.deadline; h.until.IsZero() || d.Before(h.until) {
		return d
	}
	return h.until
}

// endCause returns why the hold is over, even if the keeper has not noticed yet, or nil.
func (h *hold) endCause() error {
	if now := driver.Now(); h.cause == nil && h.deadline().Reached(now) {
		return h.lease.expiryError(now)
	}
	return h.cause
}

// isLost reports whether the hold ended before Release.
func (h *hold) isLost() bool {
	return h.cause != nil && h.cause != ErrReleased //nolint:errorlint // set by leave, never wrapped
}

// expiryError returns why a lease that has reached its deadline is over.
func (le *lease) expiryError(now driver.Instant) error {
	if h := le.hold; !h.until.IsZero() && h.until.Reached(now) {
		if h.isFixed {
			return newLoss(LossMaxHold, fmt.Sprintf("its TTL of %v is over, and it is not renewed", h.locker.conf.ttl), nil)
		}
		return newLoss(LossMaxHold, fmt.Sprintf("MaxHold of %v is over", h.locker.conf.maxHold), nil)
	}
	if err := cmp.Or(le.renewErr, le.hold.locker.core.keeper.all.err); err != nil {
		return newLoss(LossExpired, "its lease could not be renewed in time: "+err.Error(), err)
	}
	return newLoss(LossExpired, "its lease was not renewed in time", nil)
}

// A lossError is the cause of a loss, with its kind for the Traces.
type lossError struct {
	text string
	loss Loss
	begun
}

func newLoss(loss Loss, why string, reason error) *lossError {
	return &lossError{ErrLost.Error() + ": " + why, loss, begun{reason}}
}

// asLoss returns the loss that a driver tells of.
func asLoss(loss Loss, err error) *lossError {
	if errors.Is(err, ErrLost) {
		return &lossError{err.Error(), loss, begun{err}}
	}
	return newLoss(loss, err.Error(), err)
}

func (e *lossError) Error() string { return e.text }

func (e *lossError) Unwrap() error { return ErrLost }

// lossOf returns the kind of loss of a cause, or "".
func lossOf(cause error) Loss {
	if e, ok := errors.AsType[*lossError](cause); ok {
		return e.loss
	}
	return ""
}

// end marks the hold as ended. The caller runs the result without core.mu.
func (h *hold) end(cause error) ending {
	h.cause = cause
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

// endings are those of lost holds.
type endings []ending

// run ends all contexts before it calls any Trace, and does not wait for the Traces.
func (es endings) run() {
	for _, e := range es {
		e.run()
	}
	for _, e := range es {
		h := e.hold
		traces, held := &h.locker.conf.traces, driver.Now().Sub(h.since)
		switch {
		case h.unaccepted || !h.locker.conf.hasTraces:
		case h.locker.conf.detached: // it may be forgotten, or released by another process
			go traces.released.call(&ReleasedEvent{Event: eventOf(h), Held: held})
		default:
			go traces.lost.call(&LostEvent{Event: eventOf(h), Held: held, Loss: lossOf(e.cause), Err: e.cause})
		}
	}
}

// ranOut reports whether a detached hold has ended at the end of its TTL. The store then frees the
// lock by itself, unless another process has adopted the hold.
func (h *hold) ranOut() bool {
	return h.locker.conf.detached && lossOf(h.cause) == LossMaxHold
}

// releaseAtExpiry schedules the release of a lost hold's lease for the end of its TTL and
// LockDelay, if the tenure is a session. Otherwise the lease would live on with the session if
// nobody calls Release, or if Release skips the store because of a LockDelay. The holder
// has been told of the loss.
func (h *hold) releaseAtExpiry() {
	c, le := h.locker.core, h.lease
	if c.info.Tenure != driver.TenureSession || c.isClosed {
		return
	}
	end := le.confirmedAt.Add(le.ttl)
	if ttl := h.until.Add(safetyOf(h.locker.conf.ttl)); h.isFixed && ttl.Before(end) {
		end = ttl
	}
	time.AfterFunc(max(0, end.Left(driver.Now()))+h.locker.conf.lockDelay, func() { c.releaseLost(h) })
}

// releaseLost releases the lease of a lost hold, unless the store has ended the lease.
func (c *core) releaseLost(h *hold) {
	le := h.lease
	c.mu.Lock()
	ended := le.lostErr != nil
	c.mu.Unlock()
	if !ended {
		_, _ = c.releaseLease(c.releases.Context(time.Now()), le.granted)
	}
}
