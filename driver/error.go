package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// A Sentinel is an error that callers compare with [errors.Is]. It is a constant, so nobody can
// assign to it.
type Sentinel string

func (e Sentinel) Error() string { return string(e) }

// The errors that drivers and the core share. A driver may wrap them to add details.
const (
	// ErrHeld means that somebody else holds the lock.
	ErrHeld Sentinel = "the lock is held"

	// ErrUnavailable means that the store did not grant the lock, although nobody is known to
	// hold it: the store is out of reach or overloaded, or it grants nothing for a while, as
	// after a restart that may have lost leases. A later attempt may succeed. An error never
	// matches both ErrHeld and ErrUnavailable.
	ErrUnavailable Sentinel = "the store is unavailable"

	// ErrFull means that the server answers, but has no connection left for us, or no room for one
	// more lock, or that the program uses all connections of a pool itself. An error that
	// matches it matches ErrUnavailable as well. Like a holder, it is a reason to wait: a
	// request that may wait is retried without a limit.
	ErrFull Sentinel = "the server is full"

	// ErrLost means that the hold had ended before: by expiry, by force, or with its session.
	ErrLost Sentinel = "the lock was lost"

	// ErrKind means that the name is in use as a lock of another kind, such as a semaphore, or
	// has a value that is no lock at all.
	ErrKind Sentinel = "the lock is of another kind"

	// ErrInvalid means that a name, an option or a setting can't be used. Trying again will not
	// help. [Invalidf] makes errors that match it.
	ErrInvalid Sentinel = "invalid argument"

	// ErrClosed means that the driver or the Locker was closed.
	ErrClosed Sentinel = "the Locker is closed"
)

// Invalidf returns an error that matches [ErrInvalid] and says what is invalid, and why:
//
//	driver.Invalidf("TTL: %v is not positive", d) // invalid TTL: -1s is not positive
//
// The format may contain %w, as in [fmt.Errorf].
func Invalidf(format string, args ...any) error {
	return &invalidError{fmt.Errorf(format, args...)}
}

// KindError returns the error of a request for a name that is in use as the other kind of lock: as
// a semaphore if those who have it asked for slots.
func KindError(slots int) error {
	if slots > 0 {
		return fmt.Errorf("%w: the name is in use as a semaphore", ErrKind)
	}
	return fmt.Errorf("%w: the name is in use as a lock and not as a semaphore", ErrKind)
}

// An invalidError is an ErrInvalid whose text names what is invalid instead.
type invalidError struct{ what error }

func (e *invalidError) Error() string { return "invalid " + e.what.Error() }

func (e *invalidError) Unwrap() []error { return []error{ErrInvalid, e.what} }

// Digest returns the digest by which an id may be shown: 32 hexadecimal digits. The id itself
// must not be shown, because whoever knows it can release the lock. The marks of package fence
// have the same digest.
func Digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
