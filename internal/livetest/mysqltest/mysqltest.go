// Package mysqltest starts real MariaDB servers for tests.
//
//	server := mysqltest.Start(t)
//	db := dial(t, server.DSN())
//	...
//	server.Kill()
//	server.Restart()
//
// A server has its own data folder, which survives [livetest.Process.Restart] and is removed
// with the test. On Debian, the package mariadb-server contains all that is needed; the
// system's server, which it may start, is not used.
package mysqltest

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// name is the name of the server in SNIB_REQUIRE.
const name = "mysql"

// account is the user of servers: MariaDB does not run as root.
const account livetest.Account = "mysql"

// User is an account that may do everything. Database is the name of an empty database.
const (
	User     = "snib"
	Database = "snib"
)

// Password returns the password of [User], who may write files. Other users of this host reach the
// server.
func Password() string { return livetest.Secret() }

// A Server is a MariaDB server.
type Server struct {
	*livetest.Process
	database string
}

// In returns the server with the data source names of another database.
func (s *Server) In(database string) *Server { return &Server{s.Process, database} }

// Start starts a MariaDB server with the given settings, such as "max-connections=50", in
// addition to its defaults: commits wait for the disk. It skips t if MariaDB is not installed,
// or fails it if SNIB_REQUIRE names mysql.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	binary := Program(t)
	installer := livetest.Binary(t, name, "mariadb-install-db", "/usr/local/mysql/scripts")
	home := account.Home(t)
	dir := filepath.Join(home, "data")
	livetest.Must(t, account.NewData(dir, installer, "--datadir=", "--no-defaults", "--auth-root-authentication-method=normal",
		"--skip-test-db", "--innodb-log-file-size="+logSize, "--innodb-flush-log-at-trx-commit=0"), "make a database")
	initFile := filepath.Join(home, "begin.sql")
	livetest.Must(t, os.WriteFile(initFile, []byte(accounts()), 0o644), "write the accounts")
	return &Server{database: Database, Process: livetest.Start(t, livetest.Command{
		Name: name, Path: binary, Ready: ready, Dir: home, Sys: account.Sys(),
		Args: func(port int) []string {
			args := []string{
				"--no-defaults", "--datadir=" + dir, "--init-file=" + initFile, "--port=" + strconv.Itoa(port),
				"--bind-address=127.0.0.1", "--socket=" + filepath.Join(home, "socket"), "--pid-file=" + filepath.Join(home, "pid"),
				"--tmpdir=" + home, "--skip-name-resolve", "--max-connections=400", "--innodb-buffer-pool-size=32M",
				"--innodb-log-file-size=" + logSize, "--aria-pagecache-buffer-size=1M", "--key-buffer-size=1M",
			}
			for _, s := range settings {
				args = append(args, "--"+s)
			}
			return args
		},
	})}
}

// Program returns the path of the server. It skips t if MariaDB is not installed, or fails it if
// SNIB_REQUIRE names mysql.
func Program(t testing.TB) string {
	t.Helper()
	return livetest.Binary(t, name, "mariadbd", "/usr/sbin", "/usr/local/mysql/bin")
}

// accounts returns what is executed at each start. No account is left without a password.
func accounts() string {
	return `CREATE DATABASE IF NOT EXISTS ` + Database + `;
CREATE USER IF NOT EXISTS ` + User + `@'%' IDENTIFIED BY '` + Password() + `';
GRANT ALL ON *.* TO ` + User + `@'%' WITH GRANT OPTION;
DROP USER IF EXISTS root@localhost, root@'127.0.0.1', root@'::1';
`
}

// logSize is the size of the redo log, which is allocated at the start.
const logSize = "16M"

// DSN returns the data source name of the server for github.com/go-sql-driver/mysql.
func (s *Server) DSN(params ...string) string { return dsn(s.Addr(), s.database, params) }

// DSN returns the data source name for the server at addr, or for a proxy at addr.
// Each parameter is "name=value".
func DSN(addr string, params ...string) string { return dsn(addr, Database, params) }

func dsn(addr, database string, params []string) string {
	dsn := User + ":" + Password() + "@tcp(" + addr + ")/" + database
	for i, p := range params {
		dsn += map[bool]string{true: "?", false: "&"}[i == 0] + p
	}
	return dsn
}

// ready returns nil if the server at addr greets clients. It does so after it has
// recovered and created the accounts.
func ready(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it has answered
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	var head [5]byte // length, sequence number, and the protocol version or the mark of an error
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if head[4] == 0xff {
		return errors.New("it answers with an error")
	}
	return nil
}
