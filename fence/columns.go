package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sniblock/snib/driver"
)

// Columns guards rows by two columns of the rows themselves, instead of a separate table. It is
// for tables in which a separate lock guards each row. Each row remembers its own last mark.
//
// The columns do the work of a version column, or optimistic lock: an UPDATE names what it expects
// in the row, and changes nothing if it does not find it. There the version is what the writer
// has read, so any other write in between refuses it, and it must try again. Here the version is
// the token of a hold, so only a later hold refuses it. Together with the lock that is the "dual
// safeguard" that is recommended for money and stock: the lock makes conflicts rare, and the
// columns make them harmless.
//
// One statement covers one row. For transactions over several rows use [SQL].
type Columns struct {
	Dialect Dialect
	Table   string // may be qualified by a schema and a dot
	Key     string // the column that identifies a row; must be unique
	Token   string // "fence" if empty
	Owner   string // "fence_owner" if empty
}

// A Querier runs statements: a *[sql.DB], a *[sql.Conn] or a *[sql.Tx].
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// ErrNoRow means that the row does not exist, as opposed to a row that refuses the hold.
const ErrNoRow driver.Sentinel = "no such row"

func (c Columns) columnNames() (token, owner string) {
	token, owner = c.Token, c.Owner
	if token == "" {
		token = "fence"
	}
	if owner == "" {
		owner = "fence_owner"
	}
	return token, owner
}

func (c Columns) check() error {
	token, owner := c.columnNames()
	return errors.Join(c.Dialect.check(), checkIdentifier("table", c.Table, true), checkIdentifier("column", c.Key, false),
		checkIdentifier("column", token, false), checkIdentifier("column", owner, false))
}

// Schema returns the statements that add the columns.
func (c Columns) Schema() ([]string, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	token, owner := c.columnNames()
	number, text := "bigint", "text"
	switch c.Dialect {
	case MySQL:
		text = "char(32) CHARACTER SET ascii"
	case SQLite:
		number = "integer"
	}
	add := "ALTER TABLE " + c.Table + " ADD COLUMN "
	return []string{add + token + " " + number + " NOT NULL DEFAULT 0", add + owner + " " + text + " NOT NULL DEFAULT ''"},
		nil
}

// Clauses returns the parts for an UPDATE of your own: assignments for its SET, with the
// arguments token and owner, and a condition for its WHERE, with the arguments token, token and
// owner, all as in [Mark]. The arguments of set are numbered from first, and those of where
// follow; the numbers matter to PostgreSQL only.
//
// If an UPDATE changes no row, the hold was refused; or the row does not exist; or the row
// already had these values, which MySQL does not count as a change. [Columns.Verdict] tells
// which.
func (c Columns) Clauses(first int) (set, where string, err error) {
	if err = c.check(); err != nil {
		return "", "", err
	}
	token, owner := c.columnNames()
	p := c.Dialect.param
	set = token + " = " + p(first) + ", " + owner + " = " + p(first+1)
	where = "(" + token + " < " + p(first+2) + " OR " + token + " = " + p(first+3) + " AND " + owner + " = " + p(first+4) +
		")"
	return set, where, nil
}

// Claim claims the row with the given key, before it is read. The error is a *[RefusedError] if
// a later hold has claimed the row or written to it, and [ErrNoRow] if there is no such row.
func (c Columns) Claim(ctx context.Context, q Querier, m Mark, key any) error {
	return c.Update(ctx, q, m, key, nil)
}

// Update sets columns of the row with the given key. Used without [Columns.Claim] it is the
// weaker form, which checks writes only. Its errors are those of Claim.
func (c Columns) Update(ctx context.Context, q Querier, m Mark, key any, values map[string]any) error {
	query, args, err := c.updateStatement(m, key, values)
	if err != nil {
		return err
	}
	result, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return c.Verdict(ctx, q, m, key)
}

// updateStatement returns the statement of Update, with its arguments.
func (c Columns) updateStatement(m Mark, key any, values map[string]any) (query string, args []any, err error) {
	if err = m.Check(); err != nil {
		return "", nil, err
	}
	set, where, err := c.Clauses(len(values) + 1)
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	b.WriteString("UPDATE " + c.Table + " SET ")
	token, owner := c.columnNames()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err = checkIdentifier("column", name, false); err != nil {
			return "", nil, err
		}
		if name == token || name == owner || name == c.Key {
			return "", nil, driver.Invalidf("column %q: the guard sets this column, or finds the row by it", name)
		}
		args = append(args, values[name])
		b.WriteString(name + " = " + c.Dialect.param(len(args)) + ", ")
	}
	b.WriteString(set + " WHERE " + where + " AND " + c.Key + " = " + c.Dialect.param(len(values)+6))
	return b.String(), append(args, int64(m.Token), m.Owner, int64(m.Token), int64(m.Token), m.Owner, key), nil
}

// Verdict tells why an UPDATE changed no row. It returns a *[RefusedError] if the row refuses
// the hold, and [ErrNoRow] if there is no such row. It returns nil if the hold is the last one
// that the row has let in: then the row already is as the UPDATE would have left it, or another
// condition of the UPDATE's WHERE did not hold.
func (c Columns) Verdict(ctx context.Context, q Querier, m Mark, key any) error {
	if err := c.check(); err != nil {
		return err
	}
	token, owner := c.columnNames()
	last := Mark{Lock: m.Lock}
	query := "SELECT " + token + ", " + owner + " FROM " + c.Table + " WHERE " + c.Key + " = " + c.Dialect.param(1)
	if c.Dialect == MySQL {
		// The UPDATE saw what has been committed. Without this, the SELECT would see the state
		// of the transaction's first read.
		query += " FOR UPDATE"
	}
	err := q.QueryRowContext(ctx, query, key).Scan(&last.Token, &last.Owner)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w in %s", ErrNoRow, c.Table)
	case err != nil:
		return err
	}
	if err = m.After(last); err == nil && last != m {
		return fmt.Errorf("%w in %s at the time of the change, but now there is one", ErrNoRow, c.Table)
	}
	return err
}
