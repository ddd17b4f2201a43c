package snib

import (
	"fmt"

	"github.com/sniblock/snib/driver"
)

// The errors that callers check for with [errors.Is].
const (
	// ErrHeld means that somebody else holds the lock. [Locker.TryAcquire] and [NoWait] return it
	// at once, [MaxWait] after the wait.
	ErrHeld = driver.ErrHeld

	// ErrUnavailable means that the store did not grant the lock, although nobody is known to
	// hold it. The store is out of reach or overloaded, or it grants nothing for a while, for
	// example after a restart that may have lost leases. An acquisition that may wait retries for
	// one minute before it returns this error.
	ErrUnavailable = driver.ErrUnavailable

	// ErrFull means that the server answers, but has no connection left for this process. An error
	// that matches it matches ErrUnavailable as well. An acquisition that may wait retries for as
	// long as it may wait.
	ErrFull = driver.ErrFull

	// ErrLost means that the hold ended before Release: its lease could not be renewed in time,
	// the store gave the lock away or was told to, [MaxHold] was over, or the Locker was closed.
	// Somebody else may hold the lock by now.
	ErrLost = driver.ErrLost

	// ErrReleased is the cause with which the context of a released hold ends.
	ErrReleased driver.Sentinel = "the lock was released"

	// ErrNested means that the context carries a hold on the same name, so the caller would wait
	// for itself. See [Reentrant].
	ErrNested driver.Sentinel = "the lock is already held by this context"

	// ErrRegressed means that the store granted a fencing token that is not greater than one that
	// this Locker saw before: the store has lost data. It is returned only with [RequireFencing];
	// without it, only [Trace] reports the regression.
	ErrRegressed driver.Sentinel = "the fencing token went back"

	// ErrKind means that the name is in use as another kind of lock, such as
	// a semaphore of another size.
	ErrKind = driver.ErrKind

	// ErrInvalid means that a name or an option can't be used. A retry will not help.
	ErrInvalid = driver.ErrInvalid

	// ErrClosed means that the Locker was closed.
	ErrClosed = driver.ErrClosed
)

// An Error says which operation failed, on which lock, in which kind of store, and why. Err is
// the driver's error as it came, or one of this package's; [errors.Is] and [errors.As] find it.
type Error struct {
	Op      string // "acquire", "release", "new", "with"
	Name    string // of the lock in the store; "" if the operation is not about one
	Backend string // as in [Info]
	Err     error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("snib: %s (%s): %v", e.Op, e.Backend, e.Err)
	}
	return fmt.Sprintf("snib: %s %q (%s): %v", e.Op, e.Name, e.Backend, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
