package snib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Locks are holds on several names, acquired together.
type Locks struct {
	locks []*Lock // sorted by name
	ctx   context.Context
	scope *scope
	lost  chan struct{}
}

// AcquireAll waits for all the names and takes them, or none. It takes them one after the other in the order of the
// names, the same for everybody, so that two callers with names in common don't wait for each other for ever. A name
// that is given twice is taken once; no name at all is an [ErrInvalid]. Otherwise its errors are those of
// [Locker.Acquire]; a hold that is lost while the others are waited for is an [ErrLost].
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (*Locks, error) {
	if len(names) == 0 {
		return nil, l.fail("acquire", "", fmt.Errorf("%w names: there is none", ErrInvalid))
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))

	bounded, cancel := l.bound(ctx, l.conf.noWait) // all together
	defer cancel()
	each := *l
	each.conf.maxWait = 0

	ls := &Locks{lost: make(chan struct{})}
	wait, stop := context.WithCancelCause(bounded)
	waiting := &scope{cancel: stop}
	defer waiting.end(nil)
	for _, name := range names {
		lock, err := each.Acquire(wait, name)
		if err != nil {
			return nil, errors.Join(err, ls.release())
		}
		ls.locks = append(ls.locks, lock)
		waiting.endWith(lock.hold)
	}
	ls.open(ctx)
	return ls, nil
}

// open makes the context that ends with the first of the holds.
func (ls *Locks) open(parent context.Context) {
	ctx := context.WithoutCancel(parent)
	for _, lock := range ls.locks {
		ctx = carry(ctx, lock.hold) //nolint:fatcontext // one value for each hold: it carries them all
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ls.ctx = ctx
	lost, losing := ls.lost, new(sync.Once) // not ls: the holds must not keep it, and so its Locks, alive
	ls.scope = &scope{cancel: func(cause error) {
		cancel(cause)
		if errors.Is(cause, ErrLost) {
			losing.Do(func() { close(lost) })
		}
	}}
	for _, lock := range ls.locks {
		ls.scope.endWith(lock.hold)
	}
}

// Context is done when the first of the holds ends, with the cause of [Lock.Context].
func (ls *Locks) Context() context.Context { return ls.ctx }

// Lost is closed if, and only if, one of the holds ends before Release.
func (ls *Locks) Lost() <-chan struct{} { return ls.lost }

// Token is the fencing token of the hold on name, or 0 if it is none of these. The name is as the store has it,
// [Prefix] included.
func (ls *Locks) Token(name string) uint64 {
	for _, lock := range ls.locks {
		if lock.Name() == name {
			return lock.Token()
		}
	}
	return 0
}

// Release gives all the locks up, in the opposite order, as [Lock.Release] does, and joins the errors.
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
