package snib

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sniblock/snib/driver"
)

// Locks are holds on several names, acquired together.
type Locks struct {
	locks []*Lock  // sorted by name
	names []string // as the caller gave them, in the same order
	ctx   context.Context
	scope *scope
	lost  chan struct{}
}

// AcquireAll waits for all the names and acquires all of them, or none. It acquires them one after
// the other in the order of the names. That order is the same for everybody, so two callers with
// names in common do not deadlock. A name that is given twice is acquired once. The requests are
// sent one by one: if they were sent together, two callers could refuse each other, again and
// again.
//
// With [NoWait], it acquires all or none at once. If somebody else holds one of the locks, the
// error matches [ErrHeld] and names that lock. Of two such callers with names in common, at most
// one is refused because of the other.
//
// Without names, or with [MinHold], the error matches [ErrInvalid]. If a hold is lost while the
// others are waited for, it matches [ErrLost]. Other errors are those of [Locker.Acquire].
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (*Locks, error) {
	if err := l.checkSeveral(ctx, names); err != nil {
		return nil, err
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))

	bounded, cancel := l.waitContext(ctx, l.conf.noWait) // bounds the wait for all of them
	defer cancel()
	each := *l
	each.conf.maxWait = 0

	ls := &Locks{names: names, lost: make(chan struct{})}
	wait, stop := context.WithCancelCause(bounded)
	waitScope := &scope{cancel: stop}
	defer waitScope.end(nil)
	defer func() {
		if ls.scope == nil { // an error, or the panic of a Trace
			tidyUp(bounded, func() { _ = ls.release() }) // what this leaves lapses by itself
		}
	}()
	for _, name := range names {
		lock, err := each.acquire(wait, ctx, name, false)
		if err != nil {
			if loss, ok := errors.AsType[*lossError](context.Cause(wait)); ok && ctx.Err() == nil {
				err = l.wrapError("acquire", l.conf.prefix+name, loss)
			}
			return nil, err
		}
		ls.locks = append(ls.locks, lock)
		waitScope.endWith(lock.hold)
	}
	ls.openContext(ctx)
	return ls, nil
}

// checkSeveral returns why locks of several names can't be acquired together, or nil.
func (l *Locker) checkSeveral(ctx context.Context, names []string) error {
	err := l.Err()
	switch {
	case err != nil:
		return err
	case len(names) == 0:
		err = driver.Invalidf("names: there is none")
	case ctx == nil:
		err = errNilContext()
	case l.conf.minHold > 0:
		err = driver.Invalidf("MinHold: of several names, one that is acquired and given back unused would stay closed")
	default:
		return nil
	}
	return l.wrapError("acquire", "", err)
}

// AcquireAny waits until one of the names is free and acquires it: the first one, if several are.
// It serves work that needs one of several equal things, such as a port, a device or a license;
// [Lock.Name] says which one it got. While it waits, it has a place in the queue of each name. Once
// it has a lock it gives up the other places, and releases at once what it is granted there. Before
// it waits, it looks at one name after the other, and a [MaxWait] may end before the last one.
//
// Without names, or with [MinHold], the error matches [ErrInvalid]. Errors are those of
// [Locker.Acquire]; if the wait ended, they are joined for all the names, except that one which
// matches [ErrUnavailable] does not match ErrHeld. With [NoWait] it only looks for a name that is
// free.
func (l *Locker) AcquireAny(ctx context.Context, names ...string) (*Lock, error) {
	if err := l.checkSeveral(ctx, names); err != nil {
		return nil, err
	}
	bounded, cancel := l.waitContext(ctx, l.conf.noWait) // bounds the first look and the wait
	defer cancel()
	each := *l
	each.conf.maxWait = 0

	var errs []error
	for _, name := range names {
		lock, err := each.acquire(bounded, ctx, name, true)
		if err == nil {
			return lock, nil
		}
		errs = append(errs, err)
		if errors.Is(err, ErrUnavailable) { // each further request would take as long to fail
			break
		} else if !errors.Is(err, ErrHeld) {
			return nil, err
		}
	}
	if l.conf.noWait || bounded.Err() != nil && errors.Is(errs[len(errs)-1], ErrUnavailable) {
		return nil, joinChoice(errs)
	}
	return each.waitForAny(bounded, ctx, slices.Compact(slices.Sorted(slices.Values(names))))
}

// errOther ends the other waits of AcquireAny. An error of package context would be the caller's.
const errOther driver.Sentinel = "AcquireAny has got another lock"

// errEnded is the error of a wait of AcquireAny that a Trace has ended by [runtime.Goexit].
const errEnded driver.Sentinel = "a Trace has ended the goroutine that waited"

// waitForAny waits for all the names at once, and keeps the first lock. The context ctx bounds the
// wait, and caller is the one from which it is derived.
func (l *Locker) waitForAny(ctx, caller context.Context, names []string) (*Lock, error) {
	wait, stop := context.WithCancelCause(ctx)
	defer stop(errOther)
	type result struct {
		lock *Lock
		err  error
	}
	var isWon atomic.Bool
	results := make(chan result, len(names))
	for _, name := range names {
		go func() {
			got := result{err: l.wrapError("acquire", l.conf.prefix+name, errEnded)}
			defer func() { results <- got }() // also if a Trace ends the goroutine
			lock, err := l.acquire(wait, caller, name, false)
			if err == nil && !isWon.CompareAndSwap(false, true) {
				_ = lock.Release() // if it fails, the lock lapses by itself
				lock, err = nil, errOther
			}
			got = result{lock, err}
		}()
	}
	var errs []error
	for range names {
		got := <-results
		if got.err == nil {
			return got.lock, nil
		}
		errs = append(errs, got.err)
	}
	return nil, joinChoice(errs)
}

// joinChoice joins the errors of names of which one would do. If the store was unavailable for one
// of them, it leaves out those that are held: that lock may be free, and no error matches both.
func joinChoice(errs []error) error {
	if all := joinErrors(errs...); !errors.Is(all, ErrUnavailable) {
		return all
	}
	return joinErrors(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, ErrHeld) })...)
}

// noLocks says what is wrong with Locks that no AcquireAll has returned.
const noLocks = "they are nil or zero; check the error of AcquireAll before you use the Locks"

// mustHold panics if no AcquireAll has returned ls.
func (ls *Locks) mustHold() {
	if ls == nil || ls.scope == nil {
		panic("snib: invalid Locks: " + noLocks)
	}
}

// openContext makes the context that ends with the first of the holds.
func (ls *Locks) openContext(parent context.Context) {
	ctx := context.WithoutCancel(parent)
	for _, lock := range ls.locks {
		ctx = carry(ctx, lock.hold) //nolint:fatcontext // one value for each hold: it carries them all
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ls.ctx = ctx
	// Capture lost instead of ls, because the holds must not keep its Locks alive.
	lost, lostOnce := ls.lost, new(sync.Once)
	ls.scope = &scope{cancel: func(cause error) {
		cancel(cause)
		if errors.Is(cause, ErrLost) {
			lostOnce.Do(func() { close(lost) })
		}
	}}
	for _, lock := range ls.locks {
		ls.scope.endWith(lock.hold)
	}
}

// Context returns a context that is done when the first of the holds ends, with
// the cause of its [Lock.Context].
func (ls *Locks) Context() context.Context {
	ls.mustHold()
	return ls.ctx
}

// Lost returns a channel that is closed if, and only if, one of the holds ends before Release.
func (ls *Locks) Lost() <-chan struct{} {
	ls.mustHold()
	return ls.lost
}

// Lock returns the hold on a name that [Locker.AcquireAll] was called with, or nil if it was not
// called with this name. Pass it to the guards of package fence, which need its token and id.
// Locks.Release releases it; if it is released earlier, the context of the Locks ends.
func (ls *Locks) Lock(name string) *Lock {
	ls.mustHold()
	i, ok := slices.BinarySearch(ls.names, name)
	if !ok {
		return nil
	}
	return ls.locks[i]
}

// Release releases all the locks together, each as [Lock.Release] does, and joins the errors.
// Locks that are nil or zero, because AcquireAll failed, are an [ErrInvalid].
func (ls *Locks) Release() error {
	if ls == nil || ls.scope == nil {
		return &Error{Op: "release", Backend: "none", Err: driver.Invalidf("Locks: %s", noLocks)}
	}
	err := ls.release()
	ls.scope.end(ErrReleased)
	return err
}

func (ls *Locks) release() error {
	errs := make([]error, len(ls.locks))
	var wg sync.WaitGroup
	for i, lock := range ls.locks {
		wg.Go(func() { errs[i] = lock.Release() })
	}
	wg.Wait()
	return joinErrors(errs...)
}
