package snib

// This file has the Lock, by which a caller has a hold.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Lock is one hold on a lock, from Acquire to Release. It is safe for concurrent use.
type Lock struct {
	hold   *hold
	parent context.Context // passed to Acquire; used for its values

	releaseOnce sync.Once
	releaseErr  error // result of the first Release
	released    atomic.Bool

	ctxOnce sync.Once // guards the creation of ctx and scope by Context
	ctx     context.Context
	scope   atomic.Pointer[scope]
}

// noLock says what is wrong with a Lock that no Acquire has returned.
const noLock = "it is nil or zero; check the error of Acquire before you use the Lock"

// mustHold returns the hold. It panics if there is none.
func (l *Lock) mustHold() *hold {
	if l == nil || l.hold == nil {
		panic("snib: invalid Lock: " + noLock)
	}
	return l.hold
}

// Name returns the lock's name in the store, including [Prefix].
func (l *Lock) Name() string { return l.mustHold().lease.name }

// Token returns the fencing token. It is greater than that of every earlier hold of the same
// name. Send it to the resource with each request, and let the resource refuse a token that is
// smaller than the greatest it has seen. The token is 0 if, and only if, the backend has none
// ([FencingNone]). Re-entering does not change it.
func (l *Lock) Token() uint64 { return l.mustHold().token }

// ID returns the name of the grant behind the hold in the store. It is a secret: whoever knows
// it can release the lock, and with [Detached], adopt the hold ([Locker.Adopt]). So do not log
// it. Holds that were handed over within the process share one grant.
func (l *Lock) ID() string { return l.mustHold().lease.id }

// Validity returns how long the hold may still be relied on if no further renewal
// succeeds. It is 0 once the hold has ended. It shrinks while renewals fail; use that
// time to save what can be saved.
func (l *Lock) Validity() time.Duration {
	c := l.mustHold().locker.core
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
	l.mustHold()
	l.ctxOnce.Do(func() {
		var s *scope
		l.ctx, s = newContext(context.WithoutCancel(l.parent), l.hold)
		l.scope.Store(s)
		if l.released.Load() { // otherwise Release sees the scope
			s.end(ErrReleased)
		}
	})
	return l.ctx
}

// Lost returns a channel that is closed if, and only if, the hold ends before Release. Otherwise it
// stays open, so a goroutine that waits for it must also wait for something else, such as the end
// of [Lock.Context], which comes in both cases.
func (l *Lock) Lost() <-chan struct{} {
	h := l.mustHold()
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
// where the backend does not tell the holder: most do so only if it has reserved tokens for
// other goroutines that waited with it.
func (l *Lock) Wanted() <-chan struct{} {
	h := l.mustHold()
	le, c := h.lease, h.locker.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if le.wanted == nil && le.tellsWanted {
		le.wanted = make(chan struct{})
		if le.isWanted {
			close(le.wanted)
		}
	}
	return le.wanted
}

// Release gives the lock up. It may be called more than once and from any goroutine; later
// calls return the first result.
//
// Release does not depend on the context that the lock was acquired with, so a deferred Release
// is right even after a cancellation. If the store does not confirm the release within 5 seconds,
// the error matches [ErrUnreleased], and the lock lapses by itself within the TTL.
//
// An error that matches [ErrLost] means that the hold had ended before: somebody else may have
// held the lock in the meantime.
//
// Release of a nil or zero Lock returns [ErrInvalid], so a Release that is deferred before the
// error of Acquire was checked does no harm. The other methods panic then.
func (l *Lock) Release() error {
	if l == nil || l.hold == nil {
		return &Error{Op: "release", Backend: "none", Err: driver.Invalidf("Lock: %s", noLock)}
	}
	l.releaseOnce.Do(func() {
		l.releaseErr = l.hold.locker.core.leave(l.hold)
		l.released.Store(true)
		if s := l.scope.Load(); s != nil {
			s.end(ErrReleased)
		}
	})
	return l.releaseErr
}
