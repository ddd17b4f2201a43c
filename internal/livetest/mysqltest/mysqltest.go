// Package mysqltest starts real MariaDB servers for tests.
//
//	server := mysqltest.Start(t)
//	db := dial(t, server.DSN())
//	...
//	server.Kill()
//	server.Restart()
//
// A server has a folder of its own, which outlives [livetest.Process.Restart] and goes with the test. On Debian the package
// mariadb-server has all that is needed; the server that it may start for the machine is not used.
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

// name is what SNIB_REQUIRE calls the server.
const name = "mysql"

// User and Password are those of an account that may do everything. Database is there, and empty.
const (
	User     = "snib"
	Password = "mysqltest-secret"
	Database = "snib"
)

// A Server is a MariaDB server.
type Server struct {
	*livetest.Process
}

// Start starts a MariaDB server with the given settings, such as "max-connections=50", beside its defaults: commits wait
// for the disk. It skips t if MariaDB is not installed, or fails it if SNIB_REQUIRE names mysql.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	binary := livetest.Binary(t, name, "mariadbd", "/usr/sbin", "/usr/local/mysql/bin")
	install := livetest.Binary(t, name, "mariadb-install-db", "/usr/local/mysql/scripts")
	home := account.Home(t)
	dir := filepath.Join(home, "data")
	if err := newData(install, home, dir); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	begin := filepath.Join(home, "begin.sql")
	if err := os.WriteFile(begin, []byte(accounts), 0o644); err != nil {
		t.Fatalf("write the accounts: %v", err)
	}
	return &Server{livetest.Start(t, livetest.Command{
		Name: name, Path: binary, Ready: ready, Dir: home, Sys: account.Sys(),
		Args: func(port int) []string {
			args := []string{
				"--no-defaults", "--datadir=" + dir, "--init-file=" + begin, "--port=" + strconv.Itoa(port),
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

// accounts is run at each start.
const accounts = `CREATE DATABASE IF NOT EXISTS ` + Database + `;
CREATE USER IF NOT EXISTS ` + User + `@'%' IDENTIFIED BY '` + Password + `';
GRANT ALL ON *.* TO ` + User + `@'%' WITH GRANT OPTION;
`

// logSize is the size of the log that commits are written to, which is made at once.
const logSize = "16M"

// DSN returns how to connect, as github.com/go-sql-driver/mysql has it.
func (s *Server) DSN(params ...string) string { return DSN(s.Addr(), params...) }

// DSN returns how to connect to the server, or to a proxy for it, at addr. Each parameter is "name=value".
func DSN(addr string, params ...string) string {
	dsn := User + ":" + Password + "@tcp(" + addr + ")/" + Database
	for i, p := range params {
		dsn += map[bool]string{true: "?", false: "&"}[i == 0] + p
	}
	return dsn
}

// ready reports whether the server at addr greets who connects. It does so when it has recovered, and made the accounts.
func ready(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it has answered
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	var head [5]byte // length, number, and the version of the protocol or what stands for an error
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if head[4] == 0xff {
		return errors.New("it answers with an error")
	}
	return nil
}
