package fence

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/sniblock/snib/driver"
)

// A Dialect is the SQL dialect of a database.
type Dialect uint8

// The dialects. MariaDB uses that of MySQL.
const (
	Postgres Dialect = iota + 1
	MySQL
	SQLite
)

// param returns the placeholder of the n-th argument, counted from 1.
func (d Dialect) param(n int) string {
	if d == Postgres {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

func (d Dialect) check() error {
	if d < Postgres || d > SQLite {
		return driver.Invalidf("dialect: want fence.Postgres, fence.MySQL or fence.SQLite")
	}
	return nil
}

// checkIdentifier rejects names that would have to be quoted. It accepts lower-case ASCII
// letters, digits and underscores, but no digit first, and one dot in a name that can be
// qualified.
func checkIdentifier(what, name string, qualified bool) error {
	parts := []string{name}
	if qualified {
		parts = strings.SplitN(name, ".", 2)
	}
	for _, part := range parts {
		ok := part != "" && len(part) <= 63 && (part[0] < '0' || part[0] > '9')
		for _, c := range []byte(part) {
			ok = ok && (c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z')
		}
		if !ok {
			return driver.Invalidf("%s %q: want a-z, 0-9 and _, no digit first, and at most 63 of them", what, name)
		}
	}
	return nil
}

// SQL guards everything in the database of DB. It has a table with a row for each lock. Work
// under a hold is done in a transaction that first changes, or locks, this row: so the
// transactions of a stale hold and of a later one follow each other, and all statements after
// the first are covered. Any isolation level will do. In MySQL a deadlock ends the transaction, and
// what follows in it would not be guarded: return the error of each statement.
//
// SQL works through poolers, and with any driver of database/sql for the dialect. For other
// clients, [SQL.Statement] returns the statements.
type SQL struct {
	DB      *sql.DB
	Dialect Dialect
	Table   string // "snib_fence" if empty; may be qualified by a schema and a dot
}

func (g SQL) table() string { return cmp.Or(g.Table, "snib_fence") }

func (g SQL) check() error {
	if err := g.Dialect.check(); err != nil {
		return err
	}
	return checkIdentifier("table", g.table(), true)
}

// Schema returns the statement that creates the table if it does not exist.
func (g SQL) Schema() (string, error) {
	if err := g.check(); err != nil {
		return "", err
	}
	columns := "lock_name text PRIMARY KEY, token bigint NOT NULL, owner text NOT NULL"
	options := ""
	switch g.Dialect {
	case MySQL:
		columns = "lock_name varbinary(512) PRIMARY KEY, token bigint NOT NULL, owner char(32) CHARACTER SET ascii NOT NULL"
		options = " ENGINE=InnoDB"
	case SQLite:
		options = " STRICT, WITHOUT ROWID"
		columns = strings.ReplaceAll(columns, "bigint", "integer")
	}
	return "CREATE TABLE IF NOT EXISTS " + g.table() + " (" + columns + ")" + options, nil
}

// Create creates the table if it does not exist.
func (g SQL) Create(ctx context.Context) error {
	text, err := g.Schema()
	if err != nil {
		return err
	}
	_, err = g.DB.ExecContext(ctx, text)
	return err
}

// Statement returns the two statements with which a transaction must begin. The first one,
// raise, has three arguments: the lock's name, and the token and the owner of a [Mark]. It
// raises the mark in the table to that mark if the stored token is less, and in any case locks
// the row until the transaction ends. The second one, read, has the name as its argument, and
// returns the last token and owner: if they are not those of the mark, the transaction must not
// go on.
func (g SQL) Statement() (raise, read string, err error) {
	if err = g.check(); err != nil {
		return "", "", err
	}
	t := g.table()
	p := g.Dialect.param
	insert := "INSERT INTO " + t + " (lock_name, token, owner) VALUES (" + p(1) + ", " + p(2) + ", " + p(3) + ")"
	read = "SELECT token, owner FROM " + t + " WHERE lock_name = " + p(1)
	if g.Dialect == MySQL {
		// MySQL assigns columns from left to right, and owner has to see the old token. The
		// read locks, so that it sees what has been committed since the transaction began.
		return insert +
				" ON DUPLICATE KEY UPDATE owner = IF(token < VALUES(token), VALUES(owner), owner), token = GREATEST(token, " +
				"VALUES(token))",
			read + " FOR UPDATE", nil
	}
	last := t[strings.LastIndexByte(t, '.')+1:]
	return insert + " ON CONFLICT (lock_name) DO UPDATE SET" +
		" token = CASE WHEN " + last + ".token < excluded.token THEN excluded.token ELSE " + last + ".token END," +
		" owner = CASE WHEN " + last + ".token < excluded.token THEN excluded.owner ELSE " + last + ".owner END", read, nil
}

// Admit lets a hold in for the rest of a transaction, which the caller began and which has read
// nothing yet. If Admit returns an error, the transaction must be rolled back.
func (g SQL) Admit(ctx context.Context, tx *sql.Tx, m Mark) error {
	if err := m.Check(); err != nil {
		return err
	}
	raise, read, err := g.Statement()
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, raise, g.lockName(m), int64(m.Token), m.Owner); err != nil {
		return err
	}
	last := Mark{Lock: m.Lock}
	if err = tx.QueryRowContext(ctx, read, g.lockName(m)).Scan(&last.Token, &last.Owner); err != nil {
		return err
	}
	return m.After(last)
}

// lockName returns the lock's name as the column has it: in MySQL as bytes, which no collation
// folds.
func (g SQL) lockName(m Mark) any {
	if g.Dialect == MySQL {
		return []byte(m.Lock)
	}
	return m.Lock
}

// Tx lets the hold in to a new transaction and runs fn in it. It commits the transaction if fn
// returns nil. Used without [SQL.Open] it is the weaker form, which checks writes only.
func (g SQL) Tx(ctx context.Context, opts *sql.TxOptions, m Mark, fn func(*sql.Tx) error) error {
	tx, err := g.DB.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to do, and before it the error is another
	if err = g.Admit(ctx, tx, m); err != nil {
		return err
	}
	if fn != nil {
		if err = fn(tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Do implements [Guard], with a transaction that is open while fn runs; [FromTx] returns it.
func (g SQL) Do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	return g.Tx(ctx, nil, m, func(tx *sql.Tx) error {
		if fn == nil {
			return nil
		}
		return fn(context.WithValue(ctx, txKey{}, tx))
	})
}

type txKey struct{}

// FromTx returns the transaction in which [SQL.Do] runs a function.
func FromTx(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

// Open claims what the hold's lock guards in the database.
func (g SQL) Open(ctx context.Context, h Hold) (*SQLHandle, error) {
	claimed, err := Open(ctx, g, h)
	if err != nil {
		return nil, err
	}
	return &SQLHandle{Handle: claimed, guard: g}, nil
}

// A SQLHandle gives a hold access to a database that it has claimed.
type SQLHandle struct {
	*Handle
	guard SQL
}

// Tx runs fn in a transaction of the hold, and commits it if fn returns nil. Once a later hold
// has claimed the database, Tx fails with a *[RefusedError], and fn has not run.
func (h *SQLHandle) Tx(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	return h.guard.Tx(ctx, opts, h.mark, fn)
}
