package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/mysqllock"
)

// resolveMySQL is the resolve function of lease rows in MariaDB. The parameters are
// those of the Go driver's data source names.
func resolveMySQL(rest string) (location, error) {
	const example = "such as mysql://user@localhost:3306/app"
	if !strings.HasPrefix(rest, "//") {
		return location{}, fmt.Errorf("%w URL: mysql: needs a host, %s", ErrConfig, example)
	}
	split, err := splitSQL("mysql", rest)
	if err != nil {
		return location{}, err
	}
	u, err := url.Parse("mysql:" + split.rest)
	switch {
	case err != nil:
		// The error of package url repeats the URL.
		return location{}, split.errorf("it can't be read; write special characters as %%XX")
	case u.Host == "":
		return location{}, fmt.Errorf("%w URL: mysql: needs a host, %s", ErrConfig, example)
	case strings.Trim(u.Path, "/") == "":
		return location{}, fmt.Errorf("%w URL: mysql: needs a database, %s", ErrConfig, example)
	}
	c, err := mysql.ParseDSN("tcp(" + hostPort(u, "3306") + ")/?" + u.RawQuery)
	if err != nil {
		return location{}, split.errorf("one of its parameters can't be used; the parameters are those of the Go driver, such as tls=true")
	}
	c.User, c.DBName, c.Passwd = u.User.Username(), strings.Trim(u.Path, "/"), split.password
	if c.Timeout <= 0 {
		c.Timeout = sqlDialTimeout
	}
	name := canonicalSQL("mysql", c.User, c.Addr, c.DBName)
	return location{
		url: name, open: func(ctx context.Context) (driver.Driver, error) { return openMySQL(ctx, name, c) }, transport: mySQLTransport(split, c),
		openMarks: func() (*sql.DB, fence.Dialect, error) {
			db, err := newMySQLPool(name, c)
			return db, fence.MySQL, err
		},
	}, nil
}

// newMySQLPool returns a pool that has not connected yet.
func newMySQLPool(name string, c *mysql.Config) (*sql.DB, error) {
	c.Logger = &mysql.NopLogger{} // it would write to our standard error
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(name, err))
	}
	return sql.OpenDB(connector), nil
}

func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func openMySQL(ctx context.Context, name string, c *mysql.Config) (driver.Driver, error) {
	db, err := newMySQLPool(name, c)
	if err != nil {
		return nil, err
	}
	pingCtx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := db.PingContext(pingCtx); err != nil {
		_ = db.Close()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: no answer within %v", driver.ErrUnavailable, c.Timeout)
		}
		if errors.As(err, new(*mysql.MySQLError)) && !Denied(err) && !isTransient(err) { // no such database, or a variable that it refuses
			return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(name, err))
		}
		return nil, err
	}
	d, err := mysqllock.New(db)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return mySQLDriver{d, db}, nil
}

// isMySQLError reports whether err is the server's error with one of these numbers.
func isMySQLError(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range numbers {
		if e.Number == n {
			return true
		}
	}
	return false
}

// A mySQLDriver owns its connection pool, and closes it.
type mySQLDriver struct {
	*mysqllock.Driver
	db *sql.DB
}

func (d mySQLDriver) Close() error { return errors.Join(d.Driver.Close(), d.db.Close()) }
