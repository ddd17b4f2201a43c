package snib

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/sniblock/snib/driver"
)

type (
	// Status is what a store knows of one lock.
	Status = driver.Status

	// Holding is one hold in a [Status].
	Holding = driver.Holding

	// Waiting is one waiter in a [Status].
	Waiting = driver.Waiting

	// Holder describes a holding or waiting process to people.
	Holder = driver.Holder
)

// Status returns who holds a lock and who waits for it in the store. A lock that nobody holds has
// a Status without Holders. Goroutines that wait in this process for another one of it are not in
// the store.
//
// The answer may be out of date when it arrives: show it to people, and never base a decision on
// it. Anyone who knows an owner id in it can release the lock, so do not log it.
func (l *Locker) Status(ctx context.Context, name string) (st Status, err error) {
	err = l.inspect("status", l.conf.prefix+name, func(in driver.Inspector, name string) error {
		if err := driver.CheckName(name); err != nil {
			return err
		}
		st, err = in.Status(ctx, name)
		return err
	})
	return l.withoutPrefix(st), err
}

// List returns the locks that are held or waited for and whose names begin with prefix, in the
// order of names where the store has one. An error ends the sequence. A lock that is taken or freed
// meanwhile may or may not be in it, and a store that is being reorganised may show a lock twice.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		stopped := false
		err := l.inspect("list", l.conf.prefix+prefix, func(in driver.Inspector, prefix string) error {
			return in.List(ctx, prefix, func(st Status) bool {
				stopped = !yield(l.withoutPrefix(st), nil)
				return !stopped
			})
		})
		if err != nil && !stopped {
			yield(Status{}, err)
		}
	}
}

// Break frees by force the hold that the given owner has with the given token, both as in a
// [Holding]. If that hold has ended in the meantime, Break frees nothing, and the error matches
// [ErrLost]. The former holder learns of it at once where the store can tell it, and else by its
// next renewal. Until then it may still write, which only a check of fencing tokens refuses.
func (l *Locker) Break(ctx context.Context, name, owner string, token uint64) error {
	return l.inspect("break", l.conf.prefix+name, func(in driver.Inspector, name string) error {
		if err := driver.CheckName(name); err != nil {
			return err
		}
		return in.Break(ctx, name, owner, token)
	})
}

// inspect calls f with the driver's Inspector and a name or prefix in the store. It returns f's
// error as an [Error] for the operation op.
func (l *Locker) inspect(op, name string, f func(in driver.Inspector, name string) error) error {
	if l.err != nil {
		return l.err
	}
	err := fmt.Errorf("%w: the driver does not implement driver.Inspector", errors.ErrUnsupported)
	if in, ok := l.core.driver.(driver.Inspector); ok {
		err = f(in, name)
	}
	if err != nil {
		return l.wrapError(op, name, err)
	}
	return nil
}

// withoutPrefix returns a Status with the name that the caller uses.
func (l *Locker) withoutPrefix(st Status) Status {
	st.Name = strings.TrimPrefix(st.Name, l.conf.prefix)
	return st
}
