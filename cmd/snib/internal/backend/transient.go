package backend

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/redis/rueidis"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	snib "github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/rediskit"
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

// Denied reports whether a server refused a request because its user has no valid login, or no
// permission.
func Denied(err error) bool {
	// The codes are about authentication, accounts that are locked or have expired, and permissions.
	if isPostgresError(err, "28") || isPostgresError(err, "42501") ||
		isMySQLError(err, 1044, 1045, 1130, 1142, 1143, 1227, 1698, 1820, 1862, 3118, 4151) ||
		zooKeeperDenied(err) || etcdDenied(err) || serviceDenied(err) {
		return true
	}
	reply, raw, refused := new(redislock.ReplyError), new(rueidis.RedisError), rediskit.Refusal("")
	switch {
	case errors.As(err, &reply):
		return rediskit.IsDenied(reply.Text)
	case errors.As(err, &raw):
		return rediskit.IsDenied(raw.Error())
	}
	return errors.As(err, &refused) && rediskit.IsDenied(string(refused))
}

// Answered reports whether err is an answer of the store. It is false if the store could not be
// reached, did not answer, or answered only that it can't serve requests now.
func Answered(err error) bool {
	var etcd rpctypes.EtcdError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &etcd):
		return etcd.Code() != codes.Unavailable && etcd.Code() != codes.DeadlineExceeded
	case isPostgresError(err, ""):
		return !isPostgresError(err, "57P") // it is shutting down or starting
	}
	return errors.As(err, new(*redislock.ReplyError)) || errors.As(err, new(*rueidis.RedisError)) ||
		errors.As(err, new(rediskit.Refusal)) || errors.As(err, new(*mysql.MySQLError))
}

// Mismatched reports whether the servers were reached, but they and we do not agree on TLS, such as
// on the authority that signed a certificate, or they are of another kind. No retry mends that.
func Mismatched(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, new(tls.AlertError)) || errors.Is(err, http.ErrSchemeMismatch) || etcdMismatched(err)
}
