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

// Columns guards rows by two columns of their own, instead of a table beside them: for a table of which each row is guarded by a lock.
// Each row remembers its own last mark.
//
// One statement covers one row. For transactions over several, [SQL] is right.
type Columns struct {
	Dialect Dialect
	Table   string // a schema and a dot may stand before it
	Key     string // the column by which a row is named; it has to be unique
	Token   string // "fence" if empty
	Owner   string // "fence_owner" if empty
}

// A Querier runs statements: a *[sql.DB], a *[sql.Conn] or a *[sql.Tx].
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// ErrNoRow means that there is no such row; a row that refuses the hold is something else.
const ErrNoRow driver.Sentinel = "no such row"

func (c Columns) names() (token, owner string) {
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
	token, owner := c.names()
	return errors.Join(c.Dialect.check(), checkIdentifier("table", c.Table, true), checkIdentifier("column", c.Key, false),
		checkIdentifier("column", token, false), checkIdentifier("column", owner, false))
}

// Schema returns the statements that add the columns.
func (c Columns) Schema() ([]string, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	token, owner := c.names()
	number, text := "bigint", "text"
	switch c.Dialect {
	case MySQL:
		text = "char(32) CHARACTER SET ascii"
	case SQLite:
		number = "integer"
	}
	add := "ALTER TABLE " + c.Table + " ADD COLUMN "
	return []string{add + token + " " + number + " NOT NULL DEFAULT 0", add + owner + " " + text + " NOT NULL DEFAULT ''"}, nil
}

// Clauses returns what to put into an UPDATE of one's own: assignments for its SET, with the arguments token and owner, and a condition for
// its WHERE, with the arguments token, token and owner, all as in [Mark]. Set's arguments are numbered from first, and where's follow;
// only PostgreSQL cares.
//
// An UPDATE that changes no row was refused; or there is no such row; or it is MySQL, where a row that already was as it should be
// does not count. [Columns.Verdict] tells which.
func (c Columns) Clauses(first int) (set, where string, err error) {
	if err = c.check(); err != nil {
		return "", "", err
	}
	token, owner := c.names()
	p := c.Dialect.param
	set = token + " = " + p(first) + ", " + owner + " = " + p(first+1)
	where = "(" + token + " < " + p(first+2) + " OR " + token + " = " + p(first+3) + " AND " + owner + " = " + p(first+4) + ")"
	return set, where, nil
}

// Claim claims the row whose key is that, before it is read. The error is a *[RefusedError] if a later hold has claimed it or
// written to it, and [ErrNoRow] if there is none.
func (c Columns) Claim(ctx context.Context, q Querier, m Mark, key any) error {
	return c.Update(ctx, q, m, key, nil)
}

// Update sets columns of the row whose key is that. Used without [Columns.Claim] it is the weaker form, which checks writes only. Errors are
// those of Claim.
func (c Columns) Update(ctx context.Context, q Querier, m Mark, key any, values map[string]any) error {
	query, args, err := c.update(m, key, values)
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

// update returns the statement of Update, with its arguments.
func (c Columns) update(m Mark, key any, values map[string]any) (query string, args []any, err error) {
	if err = m.Check(); err != nil {
		return "", nil, err
	}
	set, where, err := c.Clauses(len(values) + 1)
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	b.WriteString("UPDATE " + c.Table + " SET ")
	token, owner := c.names()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err = checkIdentifier("column", name, false); err != nil {
			return "", nil, err
		}
		if name == token || name == owner || name == c.Key {
			return "", nil, fmt.Errorf("%w column %q: the guard sets it, or finds the row by it", driver.ErrInvalid, name)
		}
		args = append(args, values[name])
		b.WriteString(name + " = " + c.Dialect.param(len(args)) + ", ")
	}
	b.WriteString(set + " WHERE " + where + " AND " + c.Key + " = " + c.Dialect.param(len(values)+6))
	return b.String(), append(args, int64(m.Token), m.Owner, int64(m.Token), int64(m.Token), m.Owner, key), nil
}

// Verdict tells why an UPDATE changed no row: it returns a *[RefusedError] if the row refuses the hold, [ErrNoRow] if there is no such row, and nil if
// the hold is the last one that the row has let in, so that the row is as the UPDATE would have left it, or what else was in its WHERE
// did not hold.
func (c Columns) Verdict(ctx context.Context, q Querier, m Mark, key any) error {
	if err := c.check(); err != nil {
		return err
	}
	token, owner := c.names()
	last := Mark{Lock: m.Lock}
	query := "SELECT " + token + ", " + owner + " FROM " + c.Table + " WHERE " + c.Key + " = " + c.Dialect.param(1)
	if c.Dialect == MySQL {
		query += " FOR UPDATE" // the UPDATE saw what has been committed; without this, the transaction's first reading would count
	}
	err := q.QueryRowContext(ctx, query, key).Scan(&last.Token, &last.Owner)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w in %s", ErrNoRow, c.Table)
	case err != nil:
		return err
	}
	if err = m.After(last); err == nil && last != m {
		return fmt.Errorf("%w in %s when it was to be changed, but now there is one", ErrNoRow, c.Table)
	}
	return err
}
