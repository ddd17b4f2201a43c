package backend

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/mysqllock"
)

// mySQLParameters are those of the client mysql and of MySQL's URLs that the Go driver does not
// know: it would take them for variables of the server.
var mySQLParameters = map[string]func(string) error{
	"socket": nil, "ssl-ca": nil, "ssl-cert": nil, "ssl-key": nil,
	"ssl-mode": oneOf("it is DISABLED, PREFERRED, REQUIRED or VERIFY_IDENTITY; VERIFY_CA, which lets another host pass that the same authority has signed, there is not",
		"DISABLED", "PREFERRED", "REQUIRED", "VERIFY_IDENTITY"),
	"ca": refuse("here it is ssl-ca"), "cert": refuse("here it is ssl-cert"), "key": refuse("here it is ssl-key"),
	"insecure": refuse("here it is ssl-mode=REQUIRED"), "dial-timeout": refuse("here it is timeout"),
}

// resolveMySQL is the resolve function of lease rows in MariaDB. Other parameters than those above
// are of the Go driver's data source names.
func resolveMySQL(rest string) (location, error) {
	const example = "such as mysql://user@localhost:3306/app"
	dialect := sqlDialect{scheme: "mysql", taken: mySQLParameters, check: func(_, pair string) error {
		if _, err := mysql.ParseDSN("/?" + pair); err != nil {
			return errValue
		}
		return nil
	}}
	split, err := dialect.split(rest)
	if err != nil {
		return location{}, err
	}
	u, err := url.Parse("mysql:" + split.rest)
	socket := cmp.Or(split.socket, split.taken["socket"])
	switch {
	case err != nil:
		// The error of package url repeats the URL.
		return location{}, split.errorf("it can't be read; write special characters as %%XX, and a socket as ?socket=PATH")
	case u.Host == "" && socket == "":
		return location{}, fmt.Errorf("%w URL: mysql: needs a host, %s, or ?socket=PATH", ErrConfig, example)
	case strings.Trim(u.Path, "/") == "":
		return location{}, fmt.Errorf("%w URL: mysql: needs a database, %s", ErrConfig, example)
	}
	c, err := mysql.ParseDSN("tcp(" + hostPort(u, "3306") + ")/?" + u.RawQuery)
	if err != nil {
		return location{}, split.errorf("one of its parameters can't be used; the parameters are those of the Go driver, such as tls=true")
	}
	if socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	c.User, c.DBName, c.Passwd = u.User.Username(), strings.Trim(u.Path, "/"), split.password
	if c.Timeout <= 0 {
		c.Timeout = sqlDialTimeout
	}
	if err := split.applyTLS(c); err != nil {
		return location{}, err
	}
	if split.passwordFile != "" {
		err := c.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) (err error) {
			c.Passwd, err = split.currentPassword()
			return err
		}))
		if err != nil {
			return location{}, err
		}
	}
	name := canonicalSQL("mysql", c.User, c.Addr, c.DBName)
	return location{
		url: name, open: func(ctx context.Context) (driver.Driver, error) { return openMySQL(ctx, name, c) },
		secrets: []string{split.passwordFile, split.taken["ssl-key"]},
		openMarks: func() (*sql.DB, fence.Dialect, error) {
			db, err := newMySQLPool(name, c)
			return db, fence.MySQL, err
		},
	}, nil
}

// applyTLS applies the parameters about TLS that the Go driver does not know.
func (u *sqlURL) applyTLS(c *mysql.Config) (err error) {
	mode, ca, cert, key := u.taken["ssl-mode"], u.taken["ssl-ca"], u.taken["ssl-cert"], u.taken["ssl-key"]
	switch {
	case mode+ca+cert+key == "":
		return nil
	case c.TLSConfig != "":
		return u.errorf("it has tls of the Go driver, and ssl- parameters of MySQL; drop one of them")
	case (cert == "") != (key == ""):
		return u.errorf("parameters ssl-cert and ssl-key belong together; give both")
	case ca != "" && mode != "" && mode != "VERIFY_IDENTITY":
		return u.errorf("with ssl-ca, ssl-mode is VERIFY_IDENTITY")
	case mode == "DISABLED":
		c.TLSConfig = "false"
	case mode == "PREFERRED":
		c.TLSConfig = "preferred"
	default:
		secure := serverURL{urlKind: urlKind{tls: true}, ca: ca, cert: cert, key: key,
			insecure: mode == "REQUIRED" || mode == "" && ca == ""}
		c.TLS, err = secure.tlsConfig()
	}
	return err
}

// newMySQLPool returns a pool that has not connected yet.
func newMySQLPool(name string, c *mysql.Config) (*sql.DB, error) {
	c.Logger = &mysql.NopLogger{} // it would write to our standard error
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(name, err))
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(time.Second) // the driver has connections of its own, and each process counts
	return db, nil
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
		// There is no such database, variable or value, or no TLS where the URL asks for it.
		if isMySQLError(err, 1049, 1193, 1231, 1232) || errors.Is(err, mysql.ErrNoTLS) {
			return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(name, err))
		}
		return nil, err
	}
	d, err := mysqllock.New(c)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return mySQLDriver{d, db}, nil
}

// isMySQLError reports whether err is the server's error with one of these numbers.
func isMySQLError(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// A mySQLDriver owns a connection pool beside the driver's, and closes it.
type mySQLDriver struct {
	*mysqllock.Driver
	db *sql.DB
}

func (d mySQLDriver) Close() error { return errors.Join(d.Driver.Close(), d.db.Close()) }
