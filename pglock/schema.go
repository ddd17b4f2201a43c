package pglock

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// version of the table, see docs/backends/pglock.md, "Wire format".
const version = 1

// schema creates the table. It may be run again, and by several at once if each does so in one transaction: the advisory
// lock keeps those apart who would otherwise fail on one another.
const schema = `SELECT pg_advisory_xact_lock(1936615778, 0);
CREATE TABLE IF NOT EXISTS {table} (
	name    text COLLATE "C" PRIMARY KEY,
	token   bigint  NOT NULL,
	slots   integer NOT NULL,
	holders jsonb   NOT NULL,
	waiters jsonb   NOT NULL,
	used    bigint  NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {table} VALUES ('', 0, 1, '[]', '[]', 0) ON CONFLICT DO NOTHING;
`

// Schema returns the statements that create the table, for those who create tables by migrations. Several may run them
// at once, and again. With an empty table the name is snib_locks; for [NewSession] it is snib_sessions.
//
// A role that uses locks needs SELECT, INSERT, UPDATE and DELETE on the table, and nothing else.
func Schema(table string) (string, error) {
	c := config{}
	if err := Table(cmp.Or(table, "snib_locks"))(&c); err != nil {
		return "", err
	}
	return render(schema, c.table), nil
}

// render puts the name of the table into a statement.
func render(sql string, table pgx.Identifier) string {
	return strings.ReplaceAll(sql, "{table}", table.Sanitize())
}

// A store is what the driver knows of the database. Its zero value knows nothing.
type store struct {
	ready atomic.Bool // the table is there and ours

	modes
}

// prepare makes sure, once, that the table is there and ours.
func (d *Driver) prepare(ctx context.Context) error {
	if d.store.ready.Load() {
		return nil
	}
	err := d.examine(ctx)
	if code(err) == undefinedTable {
		if err = d.create(ctx); err == nil {
			err = d.examine(ctx)
		}
	}
	if err == nil {
		d.store.ready.Store(true)
	}
	return err
}

// examine checks that the database is one that we can use and the table one of ours.
func (d *Driver) examine(ctx context.Context) error {
	var encoding string
	var standby bool
	found := -1
	err := d.query(ctx, render(`SELECT current_setting('server_encoding'), pg_is_in_recovery(),
		coalesce((SELECT slots FROM {table} WHERE name = ''), 0)`, d.conf.table), nil, func(rows pgx.Rows) error {
		return rows.Scan(&encoding, &standby, &found)
	})
	switch {
	case code(err) == undefinedColumn || code(err) == undefinedFunction || code(err) == wrongObjectType:
		return fmt.Errorf("%w table %s: it is not one of ours (%w); name another with the option Table",
			driver.ErrInvalid, d.conf.table.Sanitize(), err)
	case err != nil:
		return err
	case standby:
		return fmt.Errorf("%w server: it is a standby, which can't be written to; connect to the primary "+
			"(target_session_attrs=read-write)", driver.ErrInvalid)
	case encoding != "UTF8":
		return fmt.Errorf("%w database: its encoding is %s, and names need UTF8", driver.ErrInvalid, encoding)
	case found != version:
		return fmt.Errorf("%w table %s: it has version %d, and this program knows version %d",
			driver.ErrInvalid, d.conf.table.Sanitize(), found, version)
	}
	return nil
}

// create makes the table.
func (d *Driver) create(ctx context.Context) error {
	sql := render(schema, d.conf.table)
	err := pgx.BeginTxFunc(ctx, d.pool, ours(), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if c := code(err); c == insufficientPrivilege || c == readOnly {
		return fmt.Errorf("the table %s is not there, and we may not create it: %w; somebody who may has to run:\n%s",
			d.conf.table.Sanitize(), err, sql)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.explain(err)
}

// ours are the options of our transactions, whatever the user's defaults are.
func ours() pgx.TxOptions {
	return pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
}
