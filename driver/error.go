package driver

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

	// ErrFull means that the server answers, but has no connection left for us. An error that
	// matches it matches ErrUnavailable as well. Like a holder, it is a reason to wait: a
	// request that may wait is retried without a limit.
	ErrFull Sentinel = "the server has no connection left"

	// ErrLost means that the hold had ended before: by expiry, by force, or with its session.
	ErrLost Sentinel = "the lock was lost"

	// ErrKind means that the name is in use as a lock of another kind: a semaphore, a semaphore
	// of another size, or a value that is no lock at all.
	ErrKind Sentinel = "kind conflict"

	// ErrInvalid means that a name, an option or a setting can't be used. Trying again will not
	// help.
	ErrInvalid Sentinel = "invalid"

	// ErrClosed means that the driver or the Locker was closed.
	ErrClosed Sentinel = "closed"
)
