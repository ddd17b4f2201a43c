package pattern

import (
	"context"
	"errors"
	"fmt"

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

// A postgresClient sends one statement at a time on a connection of its own, and traces it.
type postgresClient struct {
	Spec
	trace Tracer
	conn  *pgx.Conn
}

// onPostgres returns a function that opens clients of a pattern.
func onPostgres(pattern func(*postgresClient) (*Client, error)) func(context.Context, Spec, Tracer) (*Client, error) {
	return func(ctx context.Context, s Spec, t Tracer) (*Client, error) {
		conn, err := pgx.Connect(ctx, s.URLs[0])
		if err != nil {
			return nil, err
		}
		p := &postgresClient{Spec: s, trace: t, conn: conn}
		c, err := pattern(p)
		if err != nil {
			_ = conn.Close(ctx)
			return nil, err
		}
		c.Close = func() { _ = conn.Close(context.Background()) }
		return c, nil
	}
}

// traced runs a statement.
func (p *postgresClient) traced(statement string, run func() error) error {
	p.trace.Before(statement)
	if err := run(); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	p.trace.After(statement, "ok")
	return nil
}

// exec runs a statement that has no result.
func (p *postgresClient) exec(ctx context.Context, statement string) error {
	return p.traced(statement, func() error { _, err := p.conn.Exec(ctx, statement); return err })
}

// insertRow takes the lock by a row with a unique name, and frees it by deleting the row.
func insertRow(p *postgresClient) (*Client, error) {
	const uniqueViolation = "23505"
	insert := fmt.Sprintf("INSERT INTO locks VALUES ('%s', '%s')", LockName, p.Client)
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			p.trace.Before(insert)
			_, err := p.conn.Exec(ctx, insert)
			if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == uniqueViolation {
				p.trace.After(insert, "duplicate key")
				return false, nil
			}
			if err != nil {
				return false, err
			}
			p.trace.After(insert, "ok")
			return true, nil
		},
		Release: func(ctx context.Context) error {
			return p.exec(ctx, fmt.Sprintf("DELETE FROM locks WHERE name = '%s'", LockName))
		},
	}, nil
}

// autocommit locks a row by a statement that is a transaction of its own, as each statement outside
// BEGIN and COMMIT. The lock is gone when the statement is done.
func autocommit(p *postgresClient) (*Client, error) {
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			err := p.exec(ctx, "SELECT stock FROM articles WHERE id = 1 FOR UPDATE")
			return err == nil, err
		},
		Release: func(context.Context) error { return nil },
	}, nil
}

// advisory takes an advisory lock of the session, and frees it. It sends simple queries, as
// programs behind a pooler do.
func advisory(p *postgresClient) (*Client, error) {
	const key = 42
	ask := func(ctx context.Context, statement string) (done bool, err error) {
		err = p.traced(statement, func() error {
			return p.conn.QueryRow(ctx, statement, pgx.QueryExecModeSimpleProtocol).Scan(&done)
		})
		return done, err
	}
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			return ask(ctx, fmt.Sprintf("SELECT pg_try_advisory_lock(%d)", key))
		},
		Release: func(ctx context.Context) error {
			_, err := ask(ctx, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", key))
			return err
		},
	}, nil
}
