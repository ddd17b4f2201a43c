package snib

import (
	"fmt"

	"github.com/sniblock/snib/driver"
)

// The errors that callers ask for with [errors.Is].
const (
	// ErrHeld means that somebody else holds the lock: at once with [Locker.TryAcquire] or [NoWait], and after the wait
	// with [MaxWait].
	ErrHeld = driver.ErrHeld

	// ErrUnavailable means that the store did not grant the lock, although nobody is known to hold it: the store is out
	// of reach or overloaded, or it grants nothing for a while, as after a restart that may have lost leases. An
	// acquisition that may wait retries for a minute before it fails so.
	ErrUnavailable = driver.ErrUnavailable

	// ErrLost means that the hold ended before Release: its lease could not be renewed in time, the store gave the lock
	// away or was told to, [MaxHold] was over, or the Locker was closed. Somebody else may hold the lock by now.
	ErrLost = driver.ErrLost

	// ErrReleased is the cause with which the context of a hold ends that was released.
	ErrReleased driver.Sentinel = "the lock was released"

	// ErrNested means that the context carries a hold on the same name, so that waiting would be for oneself. See
	// [Reentrant].
	ErrNested driver.Sentinel = "the lock is already held by this context"

	// ErrRegressed means that the store granted a fencing token that is not above one that this Locker saw before: the
	// store has lost its memory. Only with [RequireFencing]; without it [Trace] is told.
	ErrRegressed driver.Sentinel = "the fencing token went back"

	// ErrKind means that the name is in use as another kind of lock, such as a semaphore of another size.
	ErrKind = driver.ErrKind

	// ErrInvalid means that a name or an option can't be used. Trying again will not help.
	ErrInvalid = driver.ErrInvalid

	// ErrClosed means that the Locker was closed.
	ErrClosed = driver.ErrClosed
)

// An Error says which operation on which lock went wrong, in which kind of store, and why. Err is the driver's error as
// it came, or one of this package's; [errors.Is] and [errors.As] see through.
type Error struct {
	Op      string // "acquire", "release", "new"
	Name    string // of the lock, as the store has it; "" if the operation is not about one
	Backend string // as in [driver.Info]
	Err     error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("snib: %s (%s): %v", e.Op, e.Backend, e.Err)
	}
	return fmt.Sprintf("snib: %s %q (%s): %v", e.Op, e.Name, e.Backend, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
