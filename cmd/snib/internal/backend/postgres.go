package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/pglock"
)

// sqlDialTimeout is the default timeout for a connection to a database.
const sqlDialTimeout = 5 * time.Second

// postgresPingTimeout is how long opening a store waits for an error that shows that the URL is
// wrong.
const postgresPingTimeout = time.Second

// resolvePostgres is the resolve function of lease rows in PostgreSQL. The URL, the environment
// variables and the password file are those of libpq.
func resolvePostgres(rest string) (location, error) {
	if !strings.HasPrefix(rest, "//") {
		return location{}, fmt.Errorf("%w URL: postgres: needs a host, such as postgres://user@localhost:5432/app", ErrConfig)
	}
	u, err := splitSQL("postgres", rest)
	if err != nil {
		return location{}, err
	}
	c, err := pgxpool.ParseConfig("postgres:" + u.rest)
	if err != nil {
		return location{}, u.readError(err)
	}
	if u.hasPassword {
		c.ConnConfig.Password = u.password
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = sqlDialTimeout
	}
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "snib"
	}
	host := net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))
	url := canonicalSQL("postgres", c.ConnConfig.User, host, c.ConnConfig.Database)
	return location{
		url: url, open: func(ctx context.Context) (driver.Driver, error) { return openPostgres(ctx, url, c) }, transport: postgresTransport(u, c.ConnConfig),
		openMarks: func() (*sql.DB, fence.Dialect, error) { return stdlib.OpenDB(*c.ConnConfig), fence.Postgres, nil },
	}, nil
}

// readError returns the error for a URL that pgx could not parse. The error of pgx repeats the
// URL, so readError returns only its cause, and only if that is about a file.
func (u sqlURL) readError(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%w URL: %w", ErrConfig, file)
	}
	return u.errorf("it can't be read, or one of its parameters or of the PG variables in the environment can't be used: parameters of libpq may follow a ?, " +
		"such as sslmode=verify-full")
}

func openPostgres(ctx context.Context, url string, c *pgxpool.Config) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, postgresPingTimeout)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), c)
	if err != nil {
		return nil, err
	}
	// Report permanent errors at once. The driver handles a server that is unreachable or has no
	// connection left.
	if err := pool.Ping(ctx); err != nil && !mayRecover(err) {
		pool.Close()
		if isPostgresError(err, "") && !Denied(err) { // no such database, or a parameter that it refuses
			return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(url, err))
		}
		return nil, err
	}
	pool.Reset() // the driver has connections of its own
	d, err := pglock.New(pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return postgresDriver{d, pool}, nil
}

// mayRecover reports whether a server that could not be reached may be reached later.
func mayRecover(err error) bool {
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return false
	}
	_, broken := errors.AsType[net.Error](err)
	// The connection was cut. Other errors, such as TLS that does not match, are permanent.
	return broken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		isPostgresError(err, "53") || isPostgresError(err, "57P") ||
		isPostgresError(err, "08") && !strings.Contains(err.Error(), "unsupported startup parameter") // of PgBouncer
}

// isPostgresError reports whether err is an error of the server whose code begins with code.
func isPostgresError(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && strings.HasPrefix(e.Code, code)
}

// A postgresDriver owns its connection pool, and closes it. If the server hangs, the pool's
// Close takes half a minute, so Close waits for it only for one second.
type postgresDriver struct {
	*pglock.Driver
	pool *pgxpool.Pool
}

func (d postgresDriver) Close() error {
	err := d.Driver.Close()
	closed := make(chan struct{})
	go func() { d.pool.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
	return err
}

// examinePostgresTable checks that the table of locks is as snib creates it, and who owns it. The
// creator and the owner of a table can run code with the permissions of everybody who takes a lock
// in it.
func examinePostgresTable(ctx context.Context, conn *pgxpool.Conn) (Finding, error) {
	f := Finding{Check: "table", Verdict: Good}
	var owner string
	var plain, trusted bool
	var code int
	err := conn.QueryRow(ctx, `SELECT format('%I.%I', n.nspname, c.relname), pg_get_userbyid(c.relowner), c.relkind = 'r' AND NOT c.relrowsecurity,
		c.relowner = d.datdba OR (SELECT r.rolsuper OR NOT r.rolcanlogin OR r.rolname = current_user FROM pg_roles r WHERE r.oid = c.relowner),
		(SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)
			+ (SELECT count(*) FROM pg_rewrite r WHERE r.ev_class = c.oid)
			+ (SELECT count(*) FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('c', 'x'))
			+ (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_database d ON d.datname = current_database()
		WHERE c.oid = to_regclass('snib_locks')`).Scan(&f.Value, &owner, &plain, &trusted, &code)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		f.Value = "not made yet"
		return f, nil
	case err != nil:
		return f, err
	}
	f.Value += ", owned by " + owner
	switch {
	case code > 0 || !plain:
		f.Verdict = Unmet
		f.Value += fmt.Sprintf(", with %d triggers, rules, checks or expressions of others", code)
		f.Advice = "find out who made them: they run with the rights of each user who takes a lock; make the table in a schema where nobody else may create objects"
	case !trusted:
		f.Verdict = Note
		f.Advice = "the owner of the table can add a trigger that runs with the rights of each user who takes a lock; give the table to a role without login"
	}
	return f, nil
}
