package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/pglock"
)

// dialSQL bounds the first connection to a database.
const dialSQL = 5 * time.Second

// postgres is the [Scheme] of lease rows in PostgreSQL. The URL is that of every program that uses libpq, and so are the environment
// variables and the password file.
func postgres(rest string) (place, error) {
	if !strings.HasPrefix(rest, "//") {
		return place{}, fmt.Errorf("%w URL: postgres: needs a host, such as postgres://user@localhost:5432/app", ErrConfig)
	}
	c, err := pgxpool.ParseConfig("postgres:" + rest)
	if err != nil {
		return place{}, fmt.Errorf("%w URL: %w", ErrConfig, err) // pgx keeps the password out of it
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = dialSQL
	}
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "snib"
	}
	host := net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))
	url := "postgres://" + c.ConnConfig.User + "@" + host + "/" + c.ConnConfig.Database
	return place{url: url, open: func() (driver.Driver, error) { return openPostgres(url, c) }}, nil
}

func openPostgres(url string, c *pgxpool.Config) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.ConnConfig.ConnectTimeout)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		if postgresSays(err, "3D000") { // no such database
			return nil, fmt.Errorf("%w: %w", ErrConfig, in(url, err))
		}
		return nil, err
	}
	return postgresDriver{pglock.New(pool), pool}, nil
}

// postgresSays reports whether an error of the server has a code that begins so.
func postgresSays(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && strings.HasPrefix(e.Code, code)
}

// A postgresDriver closes its pool, which is nobody else's.
type postgresDriver struct {
	*pglock.Driver
	pool *pgxpool.Pool
}

func (d postgresDriver) Close() error {
	err := d.Driver.Close()
	d.pool.Close()
	return err
}
