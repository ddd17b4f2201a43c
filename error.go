package snib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sniblock/snib/driver"
)

// The errors that callers check for with [errors.Is].
const (
	// ErrHeld means that somebody else holds the lock. [Locker.TryAcquire] and [NoWait] return it
	// at once, [MaxWait] after the wait. The error is a *[HeldError], which can say who that is.
	ErrHeld = driver.ErrHeld

	// ErrUnavailable means that the store did not grant the lock, although nobody is known to
	// hold it. The store is out of reach or overloaded, or it grants nothing for a while, for
	// example after a restart that may have lost leases. An acquisition that may wait waits for the
	// end of that time, and retries other failures for [RetryTimeout] before it returns this error.
	ErrUnavailable = driver.ErrUnavailable

	// ErrFull means that the server answers, but has no connection left for this process, or no room
	// for one more lock, or that the program uses all connections of a pool itself. An error
	// that matches it matches ErrUnavailable as well. An acquisition that may wait retries for as
	// long as it may wait.
	ErrFull = driver.ErrFull

	// ErrLost means that the hold ended before Release: its lease could not be renewed in time,
	// the store gave the lock away or was told to, [MaxHold] or the TTL of a hold with [NoRenewal] was
	// over, or the Locker was closed. Somebody else may hold the lock by now. The error never
	// matches ErrUnavailable, ErrHeld or an error of package context.
	ErrLost = driver.ErrLost

	// ErrUnreleased means that the store did not confirm a release: the lock may stay taken until
	// its lease lapses, within the TTL. [Lock.Release] and [Locker.Do] return it. The work was done,
	// so the error never matches ErrUnavailable, ErrHeld or an error of package context.
	ErrUnreleased driver.Sentinel = "the release was not confirmed"

	// ErrReleased is the cause with which the context of a released hold ends.
	ErrReleased driver.Sentinel = "the lock was released"

	// ErrNested means that the context carries a hold on the same name, so the caller would wait
	// for itself. See [Reentrant].
	ErrNested driver.Sentinel = "the lock is already held by this context"

	// ErrRegressed means that the store granted a fencing token that is not greater than one that
	// this Locker saw before: the store has lost data. It is returned only with [RequireFencing];
	// without it, only [Trace] reports the regression.
	ErrRegressed driver.Sentinel = "the fencing token went back"

	// ErrKind means that the name is in use as another kind of lock, such as a semaphore.
	ErrKind = driver.ErrKind

	// ErrInvalid means that a name or an option can't be used. A retry will not help.
	ErrInvalid = driver.ErrInvalid

	// ErrClosed means that the Locker was closed.
	ErrClosed = driver.ErrClosed
)

// An Error says which operation failed, on which lock, in which kind of store, and why. Err is
// the driver's error as it came, or one of this package's; [errors.Is] and [errors.As] find it.
type Error struct {
	Op      string // "acquire", "release", "new", "with", "adopt", "ping", and others
	Name    string // of the lock in the store; "" if the operation is not about one
	Backend string // as in [Info]
	Err     error
}

// Error returns the error in one line of bounded length, even if the driver's has several lines.
func (e *Error) Error() string {
	cause := oneLine(fmt.Sprint(e.Err)) // Err may be nil in an Error that a program has made
	if e.Name == "" {
		return fmt.Sprintf("snib: %s (%s): %s", e.Op, e.Backend, cause)
	}
	return fmt.Sprintf("snib: %s %q (%s): %s", e.Op, shorten(e.Name, maxShownName), e.Backend, cause)
}

func (e *Error) Unwrap() error { return e.Err }

// These bound the text of one error, and of the name in it, in bytes. Others may have chosen the
// name.
const (
	maxErrorLength = 2048
	maxShownName   = 80
)

// shorten returns text, cut to at most length bytes.
func shorten(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return strings.ToValidUTF8(text[:length], "") + "…"
}

// oneLine joins the lines of an error's text, and bounds its length.
func oneLine(text string) string {
	if strings.ContainsAny(text, "\r\n") {
		text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' }), "; ")
		text = strings.ReplaceAll(text, ":; ", ": ")
	}
	return shorten(text, maxErrorLength)
}

// joinErrors is like [errors.Join], but the text is one line with at most a few of the errors.
func joinErrors(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return errorList(errs)
}

// A begun is the reason of an error of work that had begun. It matches what the reason matches,
// except for the errors that tell a caller to try again because nothing was begun.
type begun struct{ reason error }

// Is implements the method that [errors.Is] calls.
func (b begun) Is(target error) bool {
	switch target {
	case ErrUnavailable, ErrFull, ErrHeld, context.Canceled, context.DeadlineExceeded:
		return false
	}
	return errors.Is(b.reason, target)
}

// As implements the method that [errors.As] calls.
func (b begun) As(target any) bool { return errors.As(b.reason, target) }

// An errorList is several errors, of which each is matched.
type errorList []error

func (l errorList) Error() string {
	const most = 3
	texts := make([]string, 0, most+1)
	for _, err := range l[:min(len(l), most)] {
		texts = append(texts, err.Error())
	}
	if n := len(l) - most; n > 0 {
		texts = append(texts, fmt.Sprintf("and %d more errors", n))
	}
	return strings.Join(texts, "; ")
}

func (l errorList) Unwrap() []error { return l }
