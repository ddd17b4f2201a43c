package pglock

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib/driver"
)

// The codes of errors that mean something to us (PostgreSQL, Appendix A).
const (
	readOnly              = "25006"
	noStatement           = "26000" // a prepared statement that a pooler has left elsewhere
	serializationFailure  = "40001"
	deadlock              = "40P01"
	insufficientPrivilege = "42501"
	undefinedColumn       = "42703"
	wrongObjectType       = "42809"
	undefinedFunction     = "42883"
	undefinedTable        = "42P01"
	undefinedObject       = "42704"
	statementExists       = "42P05"
	lockNotAvailable      = "55P03" // NOWAIT, or lock_timeout
	queryCanceled         = "57014" // statement_timeout, or pg_cancel_backend
)

// code returns the server's code of an error, "" if it is none of the server's.
func code(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// passing reports whether an error is one of the moment, of which another try may not hear: the server's limits of time,
// or that it can't be reached.
func passing(err error) bool {
	c := code(err)
	switch {
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrKind):
		return false
	case c == "":
		return true // the connection's
	case slices.Contains([]string{serializationFailure, deadlock, lockNotAvailable, queryCanceled}, c):
		return true
	}
	return c[:2] == "57" || c[:2] == "53" || c[:2] == "08" // shut down or starting, too many connections, a pooler's
}

// explain says what is to be done about the errors of which the server's words don't say it.
func (d *Driver) explain(err error) error {
	table := d.conf.table.Sanitize()
	switch code(err) {
	case readOnly:
		return fmt.Errorf("%w server: it does not let us write, as a standby or by default_transaction_read_only: %w",
			driver.ErrInvalid, err)
	case insufficientPrivilege:
		return fmt.Errorf("we may not use the table %s: %w; somebody who may has to run: "+
			"GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO the role", table, err, table)
	case undefinedTable:
		d.store.ready.Store(false) // it was dropped: the next try makes it anew
	}
	return err
}
