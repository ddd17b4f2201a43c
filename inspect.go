package snib

import (
	"context"
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
// it. Whoever knows an id in it can release the lock, so do not log it.
func (l *Locker) Status(ctx context.Context, name string) (st Status, err error) {
	if err := l.Err(); err != nil {
		return Status{}, err
	}
	err = l.inspect(ctx, "status", l.conf.prefix+name, func(name string) error {
		st, err = l.statusInTime(ctx, name)
		return err
	})
	return l.withoutPrefix(st), err
}

// List returns the locks that are held or waited for and whose names begin with prefix, in the
// order of names where the store has one. An error ends the sequence. A lock that is taken or freed
// meanwhile may or may not be in it, and a store that is being reorganised may show a lock twice.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := l.Err(); err != nil {
			yield(Status{}, err)
			return
		}
		stopped := false
		err := l.inspect(ctx, "list", l.conf.prefix+prefix, func(prefix string) error {
			return l.core.driver.List(ctx, prefix, func(st Status) bool {
				stopped = !yield(l.withoutPrefix(st), nil)
				return !stopped
			})
		})
		if err != nil && !stopped {
			yield(Status{}, err)
		}
	}
}

// Break frees by force the hold with the given id, as in a [Holding]. If that hold has ended in
// the meantime, Break frees nothing, and the error matches [ErrLost]. The former holder learns
// of it at once where the store can tell it, and else by its next renewal, or with [NoRenewal]
// at the end of its TTL. Until then it may still write, which only a check of fencing tokens
// refuses.
func (l *Locker) Break(ctx context.Context, name, id string) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.inspect(ctx, "break", l.conf.prefix+name, func(name string) error {
		if err := driver.CheckName(name); err != nil {
			return err
		}
		return l.core.driver.Break(ctx, name, id)
	})
}

// Ping asks the store for the state of one lock, and returns nil if it answers. Use it for
// readiness probes. It acquires nothing, and sends few requests; Redlock needs answers of a
// majority.
//
// If the store can't be reached, or does not answer within 5 seconds, the error matches
// [ErrUnavailable]. It matches [ErrClosed] if the Locker is closed, and [context.Cause] of ctx if
// that ended the request. Other errors are the backend's own, such as a wrong password. A store
// that answers may still refuse to grant locks, for example during the grace period of Redis.
func (l *Locker) Ping(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.inspect(ctx, "ping", "", func(string) error {
		_, err := l.statusInTime(ctx, l.conf.prefix+"ping") // with the prefix: the access rights may be limited to it
		return err
	})
}

// inspect calls f with a name or prefix in the store, unless ctx, which f uses, is nil. It returns
// f's error as an [Error] for the operation op.
func (l *Locker) inspect(ctx context.Context, op, name string, f func(name string) error) error {
	err := errNilContext()
	if ctx != nil {
		err = f(name)
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

// statusInTime asks the store for the status of a lock. If the store does not answer within
// [driver.AnswerTimeout], the error matches ErrUnavailable.
func (l *Locker) statusInTime(ctx context.Context, name string) (Status, error) {
	if err := driver.CheckName(name); err != nil {
		return Status{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, driver.AnswerTimeout)
	defer cancel()
	st, err := l.core.driver.Status(bounded, name)
	return st, callerError(ctx, err)
}
