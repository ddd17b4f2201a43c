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

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib/driver"
)

// The codes of errors that mean something to us (PostgreSQL, Appendix A).
const (
	protocolViolation     = "08P01" // what PgBouncer says for itself
	readOnly              = "25006"
	noStatement           = "26000" // a prepared statement that a pooler has left elsewhere
	noDatabase            = "3D000"
	serializationFailure  = "40001"
	deadlock              = "40P01"
	insufficientPrivilege = "42501"
	undefinedColumn       = "42703"
	wrongObjectType       = "42809"
	undefinedFunction     = "42883"
	undefinedTable        = "42P01"
	undefinedObject       = "42704"
	statementExists       = "42P05"
	tooManyConnections    = "53300" // also: the rest is reserved for superusers
	lockNotAvailable      = "55P03" // NOWAIT, or lock_timeout
	queryCanceled         = "57014" // statement_timeout, or pg_cancel_backend
	adminShutdown         = "57P01" // or pg_terminate_backend
	crashShutdown         = "57P02"
	databaseDropped       = "57P04"
	idleSessionTimeout    = "57P05"
)

// code returns the server's code of an error, "" if it is none of the server's.
func code(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// isTransient reports whether a later attempt may succeed: the server, or the way to it, is down or overloaded for the
// moment, or a limit of time has ended the statement.
func isTransient(err error) bool {
	c := code(err)
	if c == "" {
		return isNetwork(err)
	}
	if slices.Contains([]string{serializationFailure, deadlock, lockNotAvailable, queryCanceled}, c) {
		return true
	}
	return c != databaseDropped && (c[:2] == "57" || c[:2] == "53" || c[:2] == "08") // shut down or starting, overloaded, a pooler's
}

// isNetwork reports whether a connection failed, or could not be made, for a reason that may pass. An unknown host, and a
// mismatch of TLS, don't.
func isNetwork(err error) bool {
	var unknown *net.DNSError
	var failed net.Error
	switch {
	case errors.As(err, &unknown) && unknown.IsNotFound, errors.As(err, new(tls.AlertError)):
		return false
	case errors.As(err, &failed), errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return pgconn.SafeToRetry(err) && !errors.As(err, new(*pgconn.ConnectError)) || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded)
}

// crowded reports whether the server, or a pooler before it, has no connection left.
func crowded(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == tooManyConnections ||
		refused.Code == protocolViolation && strings.HasPrefix(refused.Message, "no more connections allowed"))
}

// explain says what is to be done about the errors of which the server's words don't say it, and which of them may pass.
func (d *Driver) explain(err error) error {
	table := d.conf.table.Sanitize()
	switch c := code(err); {
	case err == nil, errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrInvalid):
		return err
	case c == readOnly:
		return fmt.Errorf("%w server: it does not let us write, as a standby or by default_transaction_read_only: %w",
			driver.ErrInvalid, err)
	case c == noDatabase:
		return fmt.Errorf("%w database: %w", driver.ErrInvalid, err)
	case c == insufficientPrivilege:
		return fmt.Errorf("we may not use the table %s: %w; somebody who may has to run: "+
			"GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO the role", table, err, table)
	case c == undefinedTable:
		d.store.ready.Store(false) // it was dropped: the next try makes it anew
	case crowded(err):
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrFull, err)
	case isTransient(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
