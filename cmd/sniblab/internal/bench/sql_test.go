//go:build unix

package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
)

// Locks by hand have a connection for each goroutine. They write nothing, and have no token, no TTL
// and no holder that others see. Those with a row change one when the lock is taken: the least that
// a lock costs whose token outlives a crash.

func postgresLibraries() []library {
	return []library{
		{"snib", usual, func(addrs []string) (*client, error) {
			pool, err := openPool(addrs)
			if err != nil {
				return nil, err
			}
			return snibClient(pglock.New(pool))
		}},
		{"snib-session", usual, func(addrs []string) (*client, error) {
			pool, err := openPool(addrs)
			if err != nil {
				return nil, err
			}
			return snibClient(pglock.NewSession(pool))
		}},
		{"advisory", usual, openAdvisory(false)},
		{"advisory-and-row", usual, openAdvisory(true)},
	}
}

// BenchmarkPostgres has one PostgreSQL, which waits for the disk.
func BenchmarkPostgres(b *testing.B) {
	server := pgtest.Start(b)
	conn, err := pgx.Connect(b.Context(), server.URL())
	if err == nil {
		_, err = conn.Exec(b.Context(), "CREATE TABLE by_hand (name text PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 50)")
		err = errors.Join(err, conn.Close(b.Context()))
	}
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, newStore("Postgres", server.Process), postgresLibraries())
}

func mariadbLibraries() []library {
	return []library{
		{"snib", usual, func(addrs []string) (*client, error) {
			conf, err := mysql.ParseDSN(mysqltest.DSN(addrs[0]))
			if err != nil {
				return nil, err
			}
			return snibClient(mysqllock.New(conf))
		}},
		{"get-lock", usual, openGetLock(false)},
		{"get-lock-and-row", usual, openGetLock(true)},
	}
}

// BenchmarkMariaDB has one MariaDB, which waits for the disk.
func BenchmarkMariaDB(b *testing.B) {
	server := mysqltest.Start(b)
	db, err := openMariaDB([]string{server.Addr()})
	if err == nil {
		_, err = db.ExecContext(b.Context(), "CREATE TABLE by_hand (name VARBINARY(767) PRIMARY KEY, token BIGINT NOT NULL)")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, newStore("MariaDB", server.Process), mariadbLibraries())
}

func openPool(addrs []string) (*pgxpool.Pool, error) {
	return pgxpool.New(context.Background(), pgtest.URL(addrs[0]))
}

func openMariaDB(addrs []string) (*sql.DB, error) {
	db, err := sql.Open("mysql", mysqltest.DSN(addrs[0]))
	if err == nil {
		db.SetMaxIdleConns(64) // more than the driver uses: no connection is closed and opened again
	}
	return db, err
}

func openAdvisory(row bool) func([]string) (*client, error) {
	return func(addrs []string) (*client, error) {
		var all []*advisory
		return &client{
			caller: func() caller {
				all = append(all, &advisory{url: pgtest.URL(addrs[0]), row: row})
				return all[len(all)-1]
			},
			close: func() {
				for _, a := range all {
					if a.conn != nil {
						_ = a.conn.Close(context.Background())
					}
				}
			},
		}, nil
	}
}

// An advisory is a connection that is opened with the first lock.
type advisory struct {
	url    string
	row    bool
	conn   *pgx.Conn
	name   string // of the last lock
	number int64  // its number
}

func (a *advisory) do(statement string, arg any) error {
	_, err := a.conn.Exec(context.Background(), statement, arg) // it is prepared the first time
	return err
}

func (a *advisory) acquire(ctx context.Context, name string) (err error) {
	if a.conn == nil {
		if a.conn, err = pgx.Connect(ctx, a.url); err != nil {
			return err
		}
	}
	isNew := a.name != name
	if isNew {
		h := fnv.New64a()
		h.Write([]byte(name))
		a.name, a.number = name, int64(h.Sum64())
	}
	if err := a.do("SELECT pg_advisory_lock($1)", a.number); err != nil || !a.row {
		return err
	}
	if isNew {
		if err := a.do("INSERT INTO by_hand VALUES ($1, 0) ON CONFLICT DO NOTHING", name); err != nil {
			return err
		}
	}
	var token int64
	return a.conn.QueryRow(ctx, "UPDATE by_hand SET token = token + 1 WHERE name = $1 RETURNING token", name).Scan(&token)
}

func (a *advisory) release() error { return a.do("SELECT pg_advisory_unlock($1)", a.number) }

func openGetLock(row bool) func([]string) (*client, error) {
	return func(addrs []string) (*client, error) {
		db, err := openMariaDB(addrs)
		if err != nil {
			return nil, err
		}
		return &client{
			caller: func() caller { return &getLock{db: db, row: row} },
			close:  func() { _ = db.Close() },
		}, nil
	}
}

// A getLock has one connection with prepared statements, from the first lock on.
type getLock struct {
	db                        *sql.DB
	row                       bool
	name                      string // of the last lock
	get, free, insert, change *sql.Stmt
}

func (g *getLock) prepare(ctx context.Context) error {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return err
	}
	for stmt, text := range map[**sql.Stmt]string{
		&g.get:    "SELECT GET_LOCK(?, 60)",
		&g.free:   "SELECT RELEASE_LOCK(?)",
		&g.insert: "INSERT IGNORE INTO by_hand VALUES (?, 0)",
		&g.change: "UPDATE by_hand SET token = LAST_INSERT_ID(token + 1) WHERE name = ?", // the answer has the token
	} {
		if *stmt, err = conn.PrepareContext(ctx, text); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	return nil
}

func (g *getLock) acquire(ctx context.Context, name string) error {
	if g.change == nil {
		if err := g.prepare(ctx); err != nil {
			return err
		}
	}
	isNew := g.name != name
	g.name = name
	if err := mustBeOne(g.get, name); err != nil || !g.row {
		return err
	}
	if isNew {
		if _, err := g.insert.Exec(name); err != nil {
			return err
		}
	}
	_, err := g.change.Exec(name)
	return err
}

func (g *getLock) release() error { return mustBeOne(g.free, g.name) }

// mustBeOne runs a query that must return 1.
func mustBeOne(stmt *sql.Stmt, name string) error {
	var n int
	err := stmt.QueryRow(name).Scan(&n)
	if err == nil && n != 1 {
		err = fmt.Errorf("the server answers %d", n)
	}
	return err
}
