package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Error numbers that the driver tells apart.
const (
	changedSinceRead   = 1020 // innodb_snapshot_isolation
	tooManyConnections = 1040
	dbAccessDenied     = 1044
	notReady           = 1047 // Galera: the node is in no cluster with a quorum
	unknownDatabase    = 1049
	serverShutdown     = 1053
	unknownColumn      = 1054
	duplicateKey       = 1062
	unknownCharset     = 1115
	tableAccessDenied  = 1142
	noSuchTable        = 1146
	unknownVariable    = 1193 // parameters of the data source name that are none of the client become variables
	tooManyOfUser      = 1203 // max_user_connections
	lockWaitTimeout    = 1205 // innodb_lock_wait_timeout, or NOWAIT
	deadlock           = 1213
	userLimit          = 1226 // max_user_connections of an account, and its limits per hour
	wrongValue         = 1231 // of a variable
	wrongType          = 1232 // of a variable
	optionPrevents     = 1290 // --read-only
	unknownTimeZone    = 1298
	queryInterrupted   = 1317
	viewNotUpdatable   = 1348
	readOnlySession    = 1792 // the transaction, by transaction_read_only
	readOnlyMode       = 1836
	readOnlyInnoDB     = 1874 // innodb_read_only
	connectionKilled   = 1927
	statementTimeout   = 1969 // max_statement_time
	cantConnectSocket  = 2002 // from proxies, like the next four
	cantConnect        = 2003
	serverGone         = 2006
	serverLost         = 2013
	serverLostAt       = 2055
)

// code returns the server's number of an error, or 0 if err does not come from the server.
func code(err error) uint16 {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return refused.Number
	}
	return 0
}

// isRolledBack reports whether the server has rolled back a statement that may succeed when it is
// run again.
func isRolledBack(err error) bool {
	return slices.Contains([]uint16{deadlock, lockWaitTimeout, changedSinceRead}, code(err))
}

// isConnectionError reports whether a connection failed while it was used. The connection may
// have been dead for long, or the server has executed the statement and its answer is lost.
func isConnectionError(err error) bool {
	if slices.Contains([]uint16{connectionKilled, serverGone, serverLost, serverLostAt}, code(err)) {
		return true
	}
	var op *net.OpError
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}

// errReadOnly means that the server has set read_only, whether or not this user may write all the
// same: another server is, or will be, the primary. Or what is written on the connection would not
// be committed, see sql/commits.sql.
const errReadOnly driver.Sentinel = "the server has set read_only, or autocommit is off on the connection"

// errHidden means that the answer to a change lacks what the statement set by LAST_INSERT_ID.
const errHidden driver.Sentinel = "connection: a proxy hides LAST_INSERT_ID; connect past it"

// errReplica means that a transaction of the caller is on a server that has set read_only: its
// locks exclude nobody on the primary.
var errReplica = fmt.Errorf("%w: the server of the transaction has set read_only", driver.ErrUnavailable)

// refusesWrites reports whether the server accepts no writes. A new connection may lead to another
// server.
func refusesWrites(err error) bool {
	return errors.Is(err, errReadOnly) ||
		slices.Contains([]uint16{optionPrevents, readOnlySession, readOnlyMode, readOnlyInnoDB, notReady}, code(err))
}

// isTransient reports whether a retry may succeed: the server does not answer, starts, shuts
// down, is overloaded, or is a replica that may be promoted soon.
func isTransient(err error) bool {
	if isConnectionError(err) || isRolledBack(err) || refusesWrites(err) {
		return true
	}
	var op *net.OpError
	var unknown *net.DNSError
	switch {
	case code(err) != 0:
		return slices.Contains([]uint16{serverShutdown, queryInterrupted, statementTimeout, cantConnectSocket,
			cantConnect}, code(err))
	case errors.As(err, &unknown):
		return !unknown.IsNotFound
	case errors.As(err, &op):
		return op.Op == "dial" // others are those of TLS
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrConnDone)
}

// A parseError means that a row holds what no driver writes.
type parseError struct{ error }

func (e parseError) Unwrap() error { return e.error }

// isMalformed reports whether the driver could not read what is in a row.
func isMalformed(err error) bool { return errors.As(err, new(parseError)) }

// rowError returns err, the result of a statement about one lock. If the row is malformed, the
// error says so and names the row.
func (d *Driver) rowError(name string, err error) error {
	if !isMalformed(err) || errors.As(err, new(*driverkit.RowError)) {
		return err
	}
	return &driverkit.RowError{Name: name, Table: d.table, Err: err}
}

// explain adds a remedy where the server's message has none, and marks transient errors with
// ErrUnavailable. If the server has no connection left, the watcher gives its own up.
func (d *Driver) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	n := code(err)
	switch {
	case n == 0 && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, driver.ErrUnavailable):
		return err
	case refusesWrites(err) && n != notReady:
		return fmt.Errorf("%w: the server accepts no writes, as a replica or by read_only: %w", driver.ErrUnavailable, err)
	case n == tableAccessDenied:
		return fmt.Errorf("this user may not use the table %s: %w; the owner of the table has to run: GRANT SELECT, "+
			"INSERT, UPDATE, DELETE "+
			"ON %s TO the user", d.table, err, d.table)
	case n == unknownVariable && strings.Contains(err.Error(), "max_statement_time"): // which the pool sets
		return driver.Invalidf("server: it has to be MariaDB 10.3 or later: %w", err)
	case slices.Contains([]uint16{unknownDatabase, unknownCharset, unknownVariable, wrongValue, wrongType,
		unknownTimeZone}, n):
		return driver.Invalidf("connection: %w", err)
	case slices.Contains([]uint16{tooManyConnections, tooManyOfUser, userLimit}, n):
		err = fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrFull, err)
		d.rows.NoteFull(err)
		return err
	case isTransient(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
