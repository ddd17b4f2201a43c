package pattern

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Patterns with PostgreSQL.
const (
	InsertRow  Name = "INSERT, then DELETE"
	Autocommit Name = "FOR UPDATE outside a transaction"
	Advisory   Name = "pg_try_advisory_lock, then pg_advisory_unlock"
)

// PostgresSchema makes the tables of the patterns: one for locks that are rows, and one with the
// stock.
const PostgresSchema = `
CREATE TABLE locks (name text PRIMARY KEY, owner text);
CREATE TABLE articles (id int PRIMARY KEY, stock int);`

// onPostgres returns a function that opens clients of a pattern, each with a connection of its own.
func onPostgres(pattern func(*pgx.Conn, Spec) *Client) func(context.Context, Spec, Tracer) (*Client, error) {
	return func(ctx context.Context, s Spec, _ Tracer) (*Client, error) {
		conn, err := pgx.Connect(ctx, s.URLs[0])
		if err != nil {
			return nil, err
		}
		c := pattern(conn, s)
		c.Close = func() { _ = conn.Close(context.Background()) }
		return c, nil
	}
}

// insertRow takes the lock by a row with a unique name, and frees it by deleting the row.
func insertRow(conn *pgx.Conn, s Spec) *Client {
	const uniqueViolation = "23505"
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			_, err := conn.Exec(ctx, "INSERT INTO locks VALUES ($1, $2)", LockName, s.Client)
			if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == uniqueViolation {
				return false, nil
			}
			return err == nil, err
		},
		Release: func(ctx context.Context) error {
			_, err := conn.Exec(ctx, "DELETE FROM locks WHERE name = $1", LockName)
			return err
		},
	}
}

// autocommit locks a row by a statement that is a transaction of its own, as each statement outside
// BEGIN and COMMIT. The lock is gone when the statement is done.
func autocommit(conn *pgx.Conn, _ Spec) *Client {
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			_, err := conn.Exec(ctx, "SELECT stock FROM articles WHERE id = 1 FOR UPDATE")
			return err == nil, err
		},
		Release: func(context.Context) error { return nil },
	}
}

// advisory takes an advisory lock of the session, and frees it. It sends simple queries, as
// programs behind a pooler do.
func advisory(conn *pgx.Conn, _ Spec) *Client {
	ask := func(ctx context.Context, statement string) (done bool, err error) {
		err = conn.QueryRow(ctx, statement, pgx.QueryExecModeSimpleProtocol).Scan(&done)
		return done, err
	}
	return &Client{
		Try: func(ctx context.Context) (bool, error) { return ask(ctx, "SELECT pg_try_advisory_lock(42)") },
		Release: func(ctx context.Context) error {
			_, err := ask(ctx, "SELECT pg_advisory_unlock(42)")
			return err
		},
	}
}
