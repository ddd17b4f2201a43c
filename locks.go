package snib

import (
	"context"
	"errors"
	"slices"
	"sync"

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

// AcquireAll waits for all the names and acquires all of them, or none. It acquires them one
// after the other in the order of the names. That order is the same for everybody, so two callers
// with names in common do not deadlock. A name that is given twice is acquired once.
//
// Without names, the error matches [ErrInvalid]. If a hold is lost while the others are waited
// for, it matches [ErrLost]. Other errors are those of [Locker.Acquire].
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (*Locks, error) {
	if len(names) == 0 {
		return nil, l.wrapError("acquire", "", driver.Invalidf("names: there is none"))
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
	for _, name := range names {
		lock, err := each.Acquire(wait, name)
		if err != nil {
			return nil, errors.Join(err, ls.release())
		}
		ls.locks = append(ls.locks, lock)
		waitScope.endWith(lock.hold)
	}
	ls.openContext(ctx)
	return ls, nil
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
func (ls *Locks) Context() context.Context { return ls.ctx }

// Lost returns a channel that is closed if, and only if, one of the holds ends before Release.
func (ls *Locks) Lost() <-chan struct{} { return ls.lost }

// Token returns the fencing token of the hold on a name that [Locker.AcquireAll] was called with,
// and false if it was not called with this name.
func (ls *Locks) Token(name string) (token uint64, ok bool) {
	i, ok := slices.BinarySearch(ls.names, name)
	if !ok {
		return 0, false
	}
	return ls.locks[i].Token(), true
}

// Release releases all the locks as [Lock.Release] does, in reverse order, and joins the errors.
func (ls *Locks) Release() error {
	err := ls.release()
	ls.scope.end(ErrReleased)
	return err
}

func (ls *Locks) release() error {
	var errs []error
	for _, lock := range slices.Backward(ls.locks) {
		errs = append(errs, lock.Release())
	}
	return errors.Join(errs...)
}
