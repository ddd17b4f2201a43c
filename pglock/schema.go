package pglock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// version is the version of the table; see "Keys" in docs/backends/pglock.md.
const version = 1

// Schema returns the statements that create the table, for users who create tables by migrations.
// They may be run repeatedly and concurrently. If table is empty, the name is snib_locks.
//
// A role that uses locks needs SELECT, INSERT, UPDATE and DELETE on the table, and nothing else.
func Schema(table string) (string, error) {
	c := config{}
	if err := Table(cmp.Or(table, "snib_locks")).set(&c); err != nil {
		return "", err
	}
	return newStatements(c.table).Schema + "\n", nil
}

// examine checks that the database and the table are usable. It creates the table if there is none.
func (d *Driver) examine(ctx context.Context) error {
	var encoding string
	var found int
	err := d.query(ctx, d.sql.Examine, nil, func(row pgx.Rows) error { return row.Scan(&encoding, &found) })
	switch {
	case code(err) == undefinedColumn || code(err) == undefinedFunction || code(err) == wrongObjectType:
		return driver.Invalidf("table %s: it is not one of ours (%w); name another with the option Table",
			d.conf.table.Sanitize(), err)
	case err != nil:
		return err
	case encoding != "UTF8":
		return driver.Invalidf("database: its encoding is %s, and names need UTF8", encoding)
	case found == 0:
		return rows.ErrEmpty
	case found != version:
		return driver.Invalidf("table %s: it has version %d, and this program supports version %d", d.conf.table.Sanitize(),
			found, version)
	}
	return nil
}

// create creates the table and its row with the version, if they are missing.
func (d *Driver) create(ctx context.Context) error {
	err := pgx.BeginTxFunc(ctx, d.pool, txOptions(), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, d.sql.Schema, pgx.QueryExecModeSimpleProtocol)
		if refusesWrites(err) {
			hangUp(tx.Conn())
		}
		return err
	})
	if code(err) == insufficientPrivilege {
		return fmt.Errorf("the table %s does not exist, and this user may not create it: %w; a user with that right has "+
			"to run:\n%s",
			d.conf.table.Sanitize(), err, d.sql.Schema)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.explain(err)
}

// txOptions returns the options of the driver's transactions, which override the user's defaults:
// our own contexts limit their time. If this process stops or vanishes within one, its rows are
// soon free again. Servers before version 17 don't know transaction_timeout.
func txOptions() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
		SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = %d;
		SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) <> '0'`,
		driverkit.CallTimeout.Milliseconds())}
}

func (d *Driver) prune(ctx context.Context, unused time.Duration) error {
	if err := d.query(ctx, d.sql.Prune, []any{unused.Microseconds()}, nil); err != nil {
		return err
	}
	return d.query(ctx, d.sql.SetFloor, []any{unused.Microseconds(), rows.MaxTokenLead.Microseconds()}, nil)
}
