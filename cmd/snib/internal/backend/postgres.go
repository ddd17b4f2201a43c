package backend

import (
	"context"
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

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/pglock"
)

// dialSQL bounds each connection to a database.
const dialSQL = 5 * time.Second

// pingPostgres is how long opening a store waits to hear that it can't be one.
const pingPostgres = time.Second

// postgres is the [Scheme] of lease rows in PostgreSQL. The URL is that of every program that uses libpq, and so are the environment
// variables and the password file.
func postgres(rest string) (place, error) {
	if !strings.HasPrefix(rest, "//") {
		return place{}, fmt.Errorf("%w URL: postgres: needs a host, such as postgres://user@localhost:5432/app", ErrConfig)
	}
	u, err := splitSQL("postgres", rest)
	if err != nil {
		return place{}, err
	}
	c, err := pgxpool.ParseConfig("postgres:" + u.rest)
	if err != nil {
		return place{}, u.unread(err)
	}
	if u.hasPassword {
		c.ConnConfig.Password = u.password
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = dialSQL
	}
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "snib"
	}
	host := net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))
	url := canonicalSQL("postgres", c.ConnConfig.User, host, c.ConnConfig.Database)
	return place{url: url, open: func() (driver.Driver, error) { return openPostgres(url, c) }, transport: postgresTransport(c.ConnConfig)}, nil
}

// unread is the error for a URL that pgx could not read. What pgx says repeats the URL, so only its cause is told, and that only if
// it is about a file.
func (u sqlURL) unread(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%w URL: %w", ErrConfig, file)
	}
	return u.bad("it can't be read, or one of its parameters or of the PG variables around us can't be used: those of libpq may follow a ?, " +
		"such as sslmode=verify-full")
}

func openPostgres(url string, c *pgxpool.Config) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pingPostgres)
	defer cancel()
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, err
	}
	// What can't be right is said now. Whether the server can be reached, and has a connection left, is the driver's business.
	if err := pool.Ping(ctx); err != nil && !postgresMayCome(err) {
		pool.Close()
		if postgresSays(err, "3D000") { // no such database
			return nil, fmt.Errorf("%w: %w", ErrConfig, in(url, err))
		}
		return nil, err
	}
	return postgresDriver{pglock.New(pool), pool}, nil
}

// postgresMayCome reports whether a server that could not be reached may be reached later.
func postgresMayCome(err error) bool {
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return false
	}
	_, broken := errors.AsType[net.Error](err)
	return broken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || // cut off; else TLS that does not match, and the like
		postgresSays(err, "53") || postgresSays(err, "57P") || postgresSays(err, "08")
}

// postgresSays reports whether an error of the server has a code that begins so.
func postgresSays(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && strings.HasPrefix(e.Code, code)
}

// A postgresDriver closes its pool, which is nobody else's. If the server hangs, the pool waits for it for half a minute: then Close
// does not wait for the pool.
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

// examinePostgresTable looks whether the table of locks is as we make it, and whose it is: whoever made it first, or owns it, can have
// code run with the rights of all who take locks in it.
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
		f.Advice = "find out who made them: they run with the rights of whoever takes a lock; make the table in a schema where nobody else may create"
	case !trusted:
		f.Verdict = Note
		f.Advice = "who owns the table can add a trigger that runs with the rights of whoever takes a lock; let a role own it that nobody logs in as"
	}
	return f, nil
}
