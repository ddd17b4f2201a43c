package golang

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib/cmd/sniblab/internal/target"
)

// openAdvisory returns an opener for PostgreSQL's advisory locks, by hand: one connection for each
// hold, lock_timeout for the wait. With ping, a holder that is asked sends an empty statement.
func openAdvisory(ping bool) opener {
	return func(ctx context.Context, m target.Message) (target.Locker, error) {
		digest := fnv.New64a()
		digest.Write([]byte(m.Name))
		key := int64(digest.Sum64())
		if err := tryPostgres(ctx, m.URL); err != nil {
			return nil, err
		}
		return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
			conn, err := pgx.Connect(ctx, m.URL)
			if err != nil {
				return nil, err
			}
			if err := lockAdvisory(ctx, conn, key, wait); err != nil {
				_ = conn.Close(ctx) // the error says more
				return nil, err
			}
			h := &target.Hold{
				Held: func() bool { return !conn.IsClosed() },
				Release: func(ctx context.Context) error {
					_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", key)
					return errors.Join(err, conn.Close(ctx))
				},
			}
			if ping {
				h.Held = func() bool { return conn.Ping(ctx) == nil }
			}
			return h, nil
		}, nil
	}
}

func tryPostgres(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func lockAdvisory(ctx context.Context, conn *pgx.Conn, key int64, wait time.Duration) error {
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", wait.Milliseconds())); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key)
	if refusal := new(pgconn.PgError); errors.As(err, &refusal) && refusal.Code == "55P03" { // lock_not_available
		return target.ErrDenied
	}
	return err
}

// openGetLock returns an opener for GET_LOCK of MariaDB, by hand: one connection for each hold.
// With ping, a holder that is asked pings the server first.
func openGetLock(ping bool) opener {
	return func(ctx context.Context, m target.Message) (target.Locker, error) {
		db, err := openMariaDB(m.URL)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			if err := getLock(ctx, conn, m.Name, wait); err != nil {
				_ = conn.Close() // the error says more
				return nil, err
			}
			h := &target.Hold{Release: func(ctx context.Context) error {
				_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK(?)", m.Name)
				return errors.Join(err, conn.Close())
			}}
			if ping {
				h.Held = func() bool { return conn.PingContext(ctx) == nil }
			}
			return h, nil
		}, db.PingContext(ctx)
	}
}

func openMariaDB(text string) (*sql.DB, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	conf := mysql.NewConfig()
	conf.Net, conf.Addr, conf.DBName = "tcp", u.Host, u.Path[1:]
	conf.User = u.User.Username()
	conf.Passwd, _ = u.User.Password()
	conf.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(conf)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(0) // a lock ends with its connection, whatever went wrong
	return db, nil
}

func getLock(ctx context.Context, conn *sql.Conn, name string, wait time.Duration) error {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, wait.Seconds()).Scan(&got)
	switch {
	case err != nil:
		return err
	case !got.Valid:
		return errors.New("GET_LOCK returned NULL")
	case got.Int64 == 0:
		return target.ErrDenied
	}
	return nil
}
