package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// version is the version of the table; see "Keys" in docs/backends/mysqllock.md.
const version = 1

// Schema returns the statements that create the table, for users who create tables by migrations.
// Each statement ends with a semicolon and a new line. They may be run repeatedly and
// concurrently. If table is empty, the name is snib_locks.
//
// A user of locks needs SELECT, INSERT, UPDATE and DELETE on the table, and nothing else. An
// invalid name of a table is a [driver.ErrInvalid].
func Schema(table string) (string, error) {
	quoted, err := quote(cmp.Or(table, strings.Trim(defaultTable, "`")))
	if err != nil {
		return "", err
	}
	return newStatements(quoted).schema(), nil
}

// schema returns the statements that create the table.
func (s statements) schema() string { return s.CreateTable + ";\n" + s.FillTable + ";\n" }

// examine checks that the server and the table are usable. It creates the table if there is none.
func (d *Driver) examine(ctx context.Context) error {
	var name string
	var logsStatements bool
	err := d.query(ctx, `SELECT @@version, @@log_bin AND @@binlog_format = 'STATEMENT'`, nil,
		func(rows *sql.Rows) error { return rows.Scan(&name, &logsStatements) })
	if err != nil {
		return err
	}
	if err := usable(name); err != nil {
		return err
	}
	if logsStatements { // which change nothing on a replica, because it has set read_only
		return driver.Invalidf("server: its binlog_format is STATEMENT, so its replicas would know of no lock; set it to MIXED or ROW")
	}
	found := -1
	err = d.query(ctx, d.sql.Inspect, nil, func(rows *sql.Rows) error { return rows.Scan(&found) })
	switch {
	case code(err) == unknownColumn:
		return driver.Invalidf("table %s: it is not one of ours (%w); name another with the option Table", d.table, err)
	case err != nil:
		return err
	case found < 0:
		return rows.ErrEmpty
	case found != version:
		return driver.Invalidf("table %s: it has version %d, and this program supports version %d", d.table, found,
			version)
	}
	return nil
}

// usable refuses servers whose SQL is not that of our statements.
func usable(name string) error {
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(name, "5.5.5-"), "%d.%d", &major, &minor); err != nil {
		return driver.Invalidf("server: its version %q can't be read", name)
	}
	if !strings.Contains(name, "MariaDB") || major*100+minor < 1003 {
		return driver.Invalidf("server: it is %s; it has to be MariaDB 10.3 or later", name)
	}
	return nil
}

// create creates the table, unless the server has set read_only: the table may not have been
// replicated yet.
func (d *Driver) create(ctx context.Context) error {
	err := d.query(ctx, "SELECT "+d.sql.Writable, nil, func(row *sql.Rows) error {
		var writable bool
		err := row.Scan(&writable)
		if !writable {
			err = errReadOnly
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, statement := range []string{d.sql.CreateTable, d.sql.FillTable} {
		_, err := d.exec(ctx, statement)
		if slices.Contains([]uint16{tableAccessDenied, dbAccessDenied}, code(err)) {
			return fmt.Errorf("the table %s does not exist, and this user may not create it: %w; a user with that right "+
				"has to run:\n%s",
				d.table, err, d.sql.schema())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
