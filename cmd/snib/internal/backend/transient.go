package backend

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"

	snib "github.com/sniblock/snib/driver"
)

// A transientError is a failure to open a store, after which a retry may succeed. It matches
// [snib.ErrUnavailable], and [snib.ErrFull] if the store has no connection left.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

func (e transientError) Is(target error) bool {
	return target == snib.ErrUnavailable || target == snib.ErrFull && isFull(e.error)
}

// markTransient wraps the error of a store that could not be opened, so that it matches
// ErrUnavailable if it is transient.
func markTransient(err error) error {
	if isTransient(err) && !errors.Is(err, snib.ErrUnavailable) {
		return transientError{err}
	}
	return err
}

// isTransient reports whether another try to open a store may succeed: nobody listens, nobody
// answers, or the server is starting or has too many connections. An unknown host is not
// transient, nor is a server that hangs up as if it did not understand the protocol.
func isTransient(err error) bool {
	if err == nil || errors.Is(err, ErrConfig) || errors.Is(err, snib.ErrInvalid) || Denied(err) {
		return false
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && !name.IsTemporary && !name.IsTimeout {
		return false
	}
	for _, target := range []error{
		context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH,
		syscall.ENETUNREACH, syscall.EAGAIN, syscall.EADDRNOTAVAIL, driver.ErrBadConn, mysql.ErrInvalidConn,
		zk.ErrNoServer, zk.ErrConnectionClosed,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return true
	}
	// The server lacks resources, is shutting down, or is starting.
	return isFull(err) || isPostgresError(err, "53") || isPostgresError(err, "57P") || isMySQLError(err, 1053)
}

// isFull reports whether a database refused a connection because it has too many. The drivers
// of other stores report that themselves.
func isFull(err error) bool {
	return isPostgresError(err, "53300") || isMySQLError(err, 1040, 1203, 1226)
}
