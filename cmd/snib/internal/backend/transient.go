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

// A transientError is the failure to open a store that a later attempt may not see. It matches
// [snib.ErrUnavailable], and [snib.ErrFull] if the store has no connection left.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

func (e transientError) Is(target error) bool {
	return target == snib.ErrUnavailable || target == snib.ErrFull && full(e.error)
}

// marked returns the error of a store that did not open, as one that matches ErrUnavailable if it is transient.
func marked(err error) error {
	if transient(err) && !errors.Is(err, snib.ErrUnavailable) {
		return transientError{err}
	}
	return err
}

// transient reports whether a later attempt to open a store may succeed: nobody listens, nobody answers, or the server is starting or
// has too many connections. A host that there is not, or a server that hangs up as if it did not understand us, will not change.
func transient(err error) bool {
	if err == nil || errors.Is(err, ErrConfig) || errors.Is(err, snib.ErrInvalid) || Denied(err) {
		return false
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && !name.IsTemporary && !name.IsTimeout {
		return false
	}
	for _, target := range []error{
		context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.EAGAIN, syscall.EADDRNOTAVAIL, driver.ErrBadConn, mysql.ErrInvalidConn, zk.ErrNoServer, zk.ErrConnectionClosed,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return true
	}
	return full(err) || postgresSays(err, "53") || postgresSays(err, "57P") || mySQLSays(err, 1053) // lacks resources; shuts down, or starts
}

// full reports whether a database refused the connection because it has too many. The drivers of
// other stores say so themselves.
func full(err error) bool {
	return postgresSays(err, "53300") || mySQLSays(err, 1040, 1203, 1226)
}
