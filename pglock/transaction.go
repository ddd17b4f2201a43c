package pglock

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Transaction is a transaction of the caller: a [pgx.Tx] as it is, or a [sql.Tx] by [SQLTx].
//
// Its methods are those of pgx.Tx. Commit is one of them because pools and connections don't have
// it: there, a lock would end with the statement that takes it.
type Transaction interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Commit(ctx context.Context) error
}

// SQLTx returns a transaction of database/sql as a [Transaction], for [Tx], [Row] and
// [Driver.IsOwner]:
//
//	err := pglock.Tx(ctx, pglock.SQLTx(tx), "orders", 0)
//
// The database may be opened with pgx/stdlib, with lib/pq, or with any other driver for PostgreSQL
// whose errors have the method SQLState() string. Without that method, a lock that is held is not
// recognized as [driver.ErrHeld].
func SQLTx(tx *sql.Tx) Transaction { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

// Exec returns an empty tag: database/sql does not report it.
func (t sqlTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	_, err := t.tx.ExecContext(ctx, sql, args...)
	return pgconn.CommandTag{}, err
}

func (t sqlTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.tx.QueryRowContext(ctx, sql, args...)
}

func (t sqlTx) Commit(context.Context) error { return t.tx.Commit() }
