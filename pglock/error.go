package pglock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Error codes that the driver distinguishes (PostgreSQL, Appendix A).
const (
	protocolViolation     = "08P01" // PgBouncer's own errors
	notSupported          = "0A000" // on a standby, of a transaction that is to write
	readOnly              = "25006"
	idleInTransaction     = "25P03" // idle_in_transaction_session_timeout, which closes the connection
	transactionTimeout    = "25P04" // the same of transaction_timeout
	noStatement           = "26000" // the pooler chose a connection without the prepared statement
	serializationFailure  = "40001"
	deadlock              = "40P01"
	insufficientPrivilege = "42501"
	undefinedColumn       = "42703"
	undefinedObject       = "42704" // for instance a parameter that an older server does not have
	wrongObjectType       = "42809"
	undefinedFunction     = "42883"
	undefinedTable        = "42P01"
	statementExists       = "42P05"
	outOfMemory           = "53200" // for instance of the locks of all sessions, max_locks_per_transaction
	tooManyConnections    = "53300" // or the remaining ones are reserved for superusers
	lockNotAvailable      = "55P03" // NOWAIT or lock_timeout
	queryCanceled         = "57014" // statement_timeout or pg_cancel_backend
	adminShutdown         = "57P01" // or pg_terminate_backend
	crashShutdown         = "57P02"
	databaseDropped       = "57P04"
	idleSessionTimeout    = "57P05"
)

// code returns the server's code of an error, or "" if err does not come from the server. The
// errors of pgx and of lib/pq have the method SQLState.
func code(err error) string {
	var refused interface{ SQLState() string }
	if errors.As(err, &refused) {
		return refused.SQLState()
	}
	return ""
}

// errDemoted means that the server accepts no writes.
var errDemoted = fmt.Errorf("%w: the server accepts no writes, as a standby or by default_transaction_read_only; connect to "+
	"the primary (target_session_attrs=read-write)", driver.ErrUnavailable)

// refusesWrites reports whether the server takes no writes: it is a standby, or a primary that was
// demoted and made read-only. None of our statements needs a feature that a server does not have.
func refusesWrites(err error) bool {
	c := code(err)
	return c == readOnly || c == notSupported
}

// isTransient reports whether a retry may succeed: the server or the network is down or
// overloaded for the moment, or a time limit has ended the statement.
func isTransient(err error) bool {
	c := code(err)
	if c == "" {
		return isNetworkError(err)
	}
	if slices.Contains([]string{idleInTransaction, transactionTimeout, serializationFailure, deadlock, lockNotAvailable,
		queryCanceled}, c) {
		return true
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Routine == "PreCommit_Notify" {
		return true // the queue of notifications is full; the code of that, 54000, has other causes
	}
	// 57: shut down or starting; 53: overloaded; 58: its disk fails; 08: from a pooler.
	return c != databaseDropped && slices.Contains([]string{"57", "53", "58", "08"}, c[:2])
}

// isNetworkError reports whether a connection failed or could not be made, for a reason that may
// pass. An unknown host and a failed TLS handshake are permanent.
func isNetworkError(err error) bool {
	var unknown *net.DNSError
	var failed net.Error
	switch {
	case errors.As(err, &unknown) && unknown.IsNotFound, errors.As(err, new(tls.AlertError)):
		return false
	case errors.As(err, &failed), errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return pgconn.SafeToRetry(err) && !errors.As(err, new(*pgconn.ConnectError)) || pgconn.Timeout(err) ||
		errors.Is(err, context.DeadlineExceeded)
}

// A parseError means that the driver can't read a row that the server can read.
type parseError struct{ error }

func (e parseError) Unwrap() error { return e.error }

// isMalformed reports whether a row has a value that the server or the driver can't read, or can't
// compute with.
func isMalformed(err error) bool {
	return strings.HasPrefix(code(err), "22") || // data exceptions
		errors.As(err, new(parseError)) || errors.As(err, new(pgx.ScanArgError))
}

// rowError returns err, the result of a statement about one lock. If the row is malformed, the
// error says so and names the row.
func (d *Driver) rowError(name string, err error) error {
	if !isMalformed(err) {
		return err
	}
	return &driverkit.RowError{Name: name, Table: d.conf.table.Sanitize(), Err: err}
}

// isOutOfConnections reports whether the server, or a pooler in front of it, has no connection
// left.
func isOutOfConnections(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == tooManyConnections ||
		refused.Code == protocolViolation && strings.HasPrefix(refused.Message, "no more connections allowed"))
}

// isMisconfigured reports whether the server, or a pooler in front of it, has refused a connection
// for a reason that only another configuration removes: a parameter that it does not know, a value
// that it can't use, a database that it does not have; or a pooler in statement mode has refused a
// transaction. A user or a password that is refused is reported as it is.
func isMisconfigured(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	if refused.Code == protocolViolation {
		return slices.ContainsFunc([]string{"unsupported startup parameter", "no such database", "no such user", "transaction blocks"},
			func(text string) bool { return strings.HasPrefix(refused.Message, text) })
	}
	return errors.As(err, new(*pgconn.ConnectError)) && !isTransient(err) && !strings.HasPrefix(refused.Code, "28")
}

// explain adds a remedy where the server's message about the table has none, and is the function
// explain for all other errors. If the server has no connection left, the listener leaves its own.
func (d *Driver) explain(err error) error {
	if table := d.conf.table.Sanitize(); code(err) == insufficientPrivilege {
		return fmt.Errorf("this user may not use the table %s: %w; the owner of the table has to run: "+
			"GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO the role", table, err, table)
	}
	err = explain(err)
	d.rows.NoteFull(err)
	return err
}

// explain marks transient errors with ErrUnavailable.
func explain(err error) error {
	switch c := code(err); {
	case err == nil, errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrInvalid),
		errors.Is(err, driver.ErrClosed):
		return err
	case refusesWrites(err) && !errors.As(err, new(*pgconn.ConnectError)):
		return fmt.Errorf("%w: %w", errDemoted, err)
	case isMisconfigured(err):
		return driver.Invalidf("connection: %w", err)
	case isOutOfConnections(err), c == outOfMemory:
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrFull, err)
	case errors.Is(err, context.DeadlineExceeded): // pgx's own, for a new connection; the caller's has not passed
		return fmt.Errorf("%w: %s", driver.ErrUnavailable,
			strings.TrimSuffix(err.Error(), ": "+context.DeadlineExceeded.Error()))
	case isTransient(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
