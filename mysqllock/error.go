package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
)

// The numbers of errors that mean something to us, in MySQL and MariaDB alike unless it says otherwise.
const (
	changedSinceRead   = 1020 // MariaDB 11, innodb_snapshot_isolation
	tooManyConnections = 1040
	dbAccessDenied     = 1044
	serverShutdown     = 1053
	unknownColumn      = 1054
	duplicateKey       = 1062
	tableAccessDenied  = 1142
	noSuchTable        = 1146
	lockWaitTimeout    = 1205 // innodb_lock_wait_timeout, and NOWAIT in MariaDB
	deadlock           = 1213
	optionPrevents     = 1290 // --read-only
	queryInterrupted   = 1317
	viewNotUpdatable   = 1348
	readOnlySession    = 1792
	readOnlyMode       = 1836
	queryTimeout       = 3024 // max_execution_time, in MySQL
	lockNoWait         = 3572 // NOWAIT, in MySQL
	statementTimeout   = 1969 // max_statement_time, in MariaDB
)

// code returns the server's number of an error, 0 if it is none of the server's.
func code(err error) uint16 {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return refused.Number
	}
	return 0
}

// again reports whether the server has undone a statement that may well succeed when it is run again.
func again(err error) bool {
	return slices.Contains([]uint16{deadlock, lockWaitTimeout, changedSinceRead}, code(err))
}

// passing reports whether an error is one of the moment, of which another try may not hear: the server's limits of time,
// or that it can't be reached.
func passing(err error) bool {
	switch {
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrKind):
		return false
	case code(err) == 0:
		return true // the connection's
	}
	return again(err) || slices.Contains([]uint16{tooManyConnections, serverShutdown, queryInterrupted, queryTimeout, statementTimeout}, code(err))
}

// explain says what is to be done about the errors of which the server's words don't say it.
func (d *Driver) explain(ctx context.Context, err error) error {
	switch code(err) {
	case optionPrevents, readOnlyMode, readOnlySession:
		return fmt.Errorf("%w server: it does not let us write, as a replica or by read_only: %w", driver.ErrInvalid, err)
	case tableAccessDenied:
		return fmt.Errorf("we may not use the table %s: %w; somebody who may has to run: GRANT SELECT, INSERT, UPDATE, DELETE "+
			"ON %s TO the user", d.conf.table, err, d.conf.table)
	case noSuchTable:
		d.store.ready.Store(false) // it was dropped: the next try makes it anew
	}
	if err != nil && ctx.Err() != nil && code(err) == 0 {
		return context.Cause(ctx)
	}
	return err
}
