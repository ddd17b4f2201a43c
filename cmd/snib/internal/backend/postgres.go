package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
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

// libpqParameters are those that psql accepts and pgx does not know: it would send them to the
// server, which ends the connection. What has nothing to do with locks is dropped: pgx has no
// compression, no GSSAPI encryption and its own keep-alive, and the driver notices by itself that
// a server is silent. A parameter that would protect the connection is refused here: a false server
// would accept it.
var libpqParameters = map[string]func(string) error{
	"hostaddr": nil, "fallback_application_name": nil, "keepalives": nil, "keepalives_idle": nil, "keepalives_interval": nil,
	"keepalives_count": nil, "tcp_user_timeout": nil, "gsslib": nil, "gssdelegation": nil, "load_balance_hosts": nil,
	"sslcompression": nil, "client_encoding": oneOf("names of locks are UTF-8", "auto", "UTF8", "UTF-8", "utf8", "utf-8"),
	"gssencmode":               oneOf("there is no encryption by GSSAPI; use TLS", "disable", "prefer"),
	"requirepeer":              refuse("the user of the server's process can't be checked"),
	"sslcrl":                   refuse("revoked certificates can't be checked"),
	"sslcrldir":                refuse("revoked certificates can't be checked"),
	"replication":              oneOf("a connection for replication has no locks", "false", "off", "no", "0"),
	"ssl_min_protocol_version": checkTLSVersion, "ssl_max_protocol_version": checkTLSVersion,
}

var tlsVersions = map[string]uint16{"TLSv1": tls.VersionTLS10, "TLSv1.1": tls.VersionTLS11, "TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}

func checkTLSVersion(value string) error {
	if tlsVersions[value] == 0 {
		return errors.New("it is TLSv1.2 or TLSv1.3")
	}
	return nil
}

// resolvePostgres is the resolve function of lease rows in PostgreSQL. The URL, the environment
// variables and the password file are those of libpq.
func resolvePostgres(rest string) (location, error) {
	dialect := sqlDialect{scheme: "postgres", taken: libpqParameters, check: checkPgx}
	u, err := dialect.split(rest)
	if err != nil {
		return location{}, err
	}
	c, err := pgxpool.ParseConfig("postgres:" + u.withSocket())
	if err != nil {
		return location{}, u.readError(err)
	}
	if u.hasPassword {
		c.ConnConfig.Password = u.password
	}
	u.applyLibpq(c.ConnConfig)
	if u.passwordFile != "" {
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) (err error) {
			c.Password, err = u.currentPassword()
			return err
		}
	}
	host := net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))
	if strings.HasPrefix(c.ConnConfig.Host, "/") {
		host = c.ConnConfig.Host + ":" + strconv.Itoa(int(c.ConnConfig.Port))
	}
	url := canonicalSQL("postgres", c.ConnConfig.User, host, c.ConnConfig.Database)
	return location{
		url: url, open: func(ctx context.Context) (driver.Driver, error) { return openPostgres(ctx, url, c) },
		secrets: u.postgresSecrets(),
		openMarks: func() (*sql.DB, fence.Dialect, error) {
			var opts []stdlib.OptionOpenDB
			if c.BeforeConnect != nil {
				opts = append(opts, stdlib.OptionBeforeConnect(c.BeforeConnect))
			}
			return stdlib.OpenDB(*c.ConnConfig, opts...), fence.Postgres, nil
		},
	}, nil
}

// postgresSecrets returns the files of libpq's parameters, variables and defaults.
func (u *sqlURL) postgresSecrets() []string {
	passfile := cmp.Or(u.parameter("passfile"), os.Getenv("PGPASSFILE"))
	if home, err := os.UserHomeDir(); passfile == "" && err == nil {
		passfile = filepath.Join(home, ".pgpass")
	}
	return []string{u.passwordFile, passfile, cmp.Or(u.parameter("sslkey"), os.Getenv("PGSSLKEY"))}
}

// checkPgx reports that pgx can't use a parameter by itself.
func checkPgx(name, pair string) error {
	_, err := pgxpool.ParseConfig("postgres://localhost/?" + pair)
	switch _, missing := errors.AsType[*fs.PathError](err); {
	case err == nil, missing, name == "sslkey", name == "sslcert": // a file, or one of two parameters
		return nil
	case name == "sslmode":
		return errors.New("it is disable, allow, prefer, require, verify-ca or verify-full; what Node.js calls no-verify is require")
	}
	return errValue
}

// withSocket returns the URL for pgx, which takes a socket only as a parameter.
func (u *sqlURL) withSocket() string {
	if u.socket == "" {
		return u.rest
	}
	sep := "?"
	if strings.Contains(u.rest, "?") {
		sep = "&"
	}
	return u.rest + sep + "host=" + escape(u.socket) + "&port=" + cmp.Or(u.socketPort, "5432")
}

// applyLibpq applies defaults, and the parameters that pgx does not know.
func (u *sqlURL) applyLibpq(c *pgx.ConnConfig) {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = sqlDialTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = cmp.Or(u.taken["fallback_application_name"], "snib")
	}
	if addr := u.taken["hostaddr"]; addr != "" {
		c.LookupFunc = func(context.Context, string) ([]string, error) { return []string{addr}, nil }
	}
	all := []*tls.Config{c.TLSConfig}
	for _, other := range c.Fallbacks {
		all = append(all, other.TLSConfig)
	}
	for _, t := range all {
		if t != nil {
			t.MinVersion = cmp.Or(tlsVersions[u.taken["ssl_min_protocol_version"]], t.MinVersion)
			t.MaxVersion = cmp.Or(tlsVersions[u.taken["ssl_max_protocol_version"]], t.MaxVersion)
		}
	}
}

// readError returns the error for a URL that pgx could not parse. The error of pgx repeats the
// URL, so readError returns only its cause, and only if that is about a file.
func (u *sqlURL) readError(err error) error {
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
		if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
			err = answer // without what was tried before, such as TLS
		}
		if wrongPostgresURL(err) {
			return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(url, err))
		}
		return nil, err
	}
	pool.Reset() // the driver has connections of its own, and each process counts
	d, err := pglock.New(pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return postgresDriver{d, pool}, nil
}

// wrongPostgresURL reports whether the server's answer to a connection shows that the URL or its
// parameters are wrong: there is no such database, setting or value, or a pooler
// refuses a setting. Or there is no TLS, where the URL asks for it.
func wrongPostgresURL(err error) bool {
	return isPostgresError(err, "3D000") || isPostgresError(err, "42704") || isPostgresError(err, "22") || isPostgresError(err, "55P02") ||
		isPostgresError(err, "08P01") || strings.Contains(err.Error(), "server refused TLS connection")
}

// mayRecover reports whether a server that could not be reached may be reached later.
func mayRecover(err error) bool {
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return false
	}
	_, broken := errors.AsType[net.Error](err)
	// The connection was cut. Other errors, such as TLS that does not match, are permanent.
	return broken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		isPostgresError(err, "53") || isPostgresError(err, "57P") || isPostgresError(err, "08") && !wrongPostgresURL(err)
}

// isPostgresError reports whether err is an error of the server whose code begins with code.
func isPostgresError(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && strings.HasPrefix(e.Code, code)
}

// A postgresDriver owns its connection pool, and closes it. If the server hangs, that takes half a
// minute.
type postgresDriver struct {
	*pglock.Driver
	pool *pgxpool.Pool
}

func (d postgresDriver) Close() error {
	defer d.pool.Close()
	return d.Driver.Close()
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
		c.relowner = d.datdba OR (SELECT r.rolsuper OR NOT r.rolcanlogin OR r.rolname = current_user
			FROM pg_roles r WHERE r.oid = c.relowner),
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
