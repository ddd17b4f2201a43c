// Package pgtest starts real PostgreSQL servers for tests, and PgBouncer in front of them.
//
//	server := pgtest.Start(t)
//	pool := dial(t, server.URL())
//	...
//	pooled := dial(t, pgtest.Pool(t, server, "transaction").URL())
//	server.Kill()
//
// A server has its own data folder, which survives [livetest.Process.Restart] and is removed
// with the test. The superuser postgres needs the password; roles that tests make need none. On
// Debian, the packages postgresql and pgbouncer contain all that is needed.
package pgtest

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// name is the name of both servers in SNIB_REQUIRE.
const name = "postgres"

// User is the superuser.
const User = "postgres"

// Password returns the password of [User]. It is in the URLs. A superuser may run programs, and
// other users of this host reach the server.
func Password() string { return livetest.Secret() }

// A Server is a PostgreSQL server, or a PgBouncer.
type Server struct {
	*livetest.Process
	database string // that of URL; "" for the first one
}

// Start starts a PostgreSQL server with the given settings, such as "max_connections=50", in
// addition to its defaults: commits wait for the disk. It skips t if PostgreSQL is not
// installed, or fails it if SNIB_REQUIRE names postgres.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, newData, settings)
}

// Database makes an empty database, for tests that share a server, and returns the server with its
// URL.
func (s *Server) Database(t testing.TB) *Server {
	t.Helper()
	psql, err := sibling(Program(t), "psql")
	livetest.Must(t, err, "make a database")
	name := strings.ToLower(rand.Text())
	cmd := exec.CommandContext(t.Context(), psql, "-qXd", s.URL(), "-c", `CREATE DATABASE "`+name+`"`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a database: %v\n%s", err, out)
	}
	return &Server{s.Process, name}
}

// Standby starts a standby of the server at addr, which may be the address of a
// proxy. The standby can be promoted.
func Standby(t testing.TB, addr string, settings ...string) *Server {
	t.Helper()
	return start(t, func(binary, dir string) error { return copyData(binary, dir, addr) }, settings)
}

// Program returns the path of the server. It skips t if PostgreSQL is not installed, or fails it if
// SNIB_REQUIRE names postgres.
func Program(t testing.TB) string {
	t.Helper()
	return livetest.Binary(t, name, "postgres", "/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
}

// start starts a server with a data folder that makeData makes.
func start(t testing.TB, makeData func(binary, dir string) error, settings []string) *Server {
	t.Helper()
	binary, home := Program(t), account.Home(t)
	dir := filepath.Join(home, "data")
	livetest.Must(t, makeData(binary, dir), "make a database")
	t.Cleanup(func() { removeMemory(dir) }) // after the end of the server
	return &Server{Process: livetest.Start(t, livetest.Command{
		Name: name, Path: binary, Ready: ready, Dir: home, Sys: account.Sys(),
		Quit: syscall.SIGINT, // a shutdown that does not wait for clients
		Args: func(port int) []string {
			args := []string{"-D", dir, "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", ""}
			for _, s := range append([]string{"max_connections=200", "shared_buffers=16MB", "max_wal_size=256MB"}, settings...) {
				args = append(args, "-c", s)
			}
			return args
		},
	})}
}

// Pool starts a PgBouncer in front of a server, with the pool mode "session",
// "transaction" or "statement". It skips t if PgBouncer is not installed, or fails
// it if SNIB_REQUIRE names postgres.
func Pool(t testing.TB, s *Server, mode string) *Server {
	t.Helper()
	binary := PoolProgram(t)
	host, port, err := net.SplitHostPort(s.Addr())
	livetest.Must(t, err, "address of the server")
	dir := account.Home(t)
	write := func(file, text string) string {
		path := filepath.Join(dir, file)
		livetest.Must(t, os.WriteFile(path, []byte(text), 0o644), "configure pgbouncer")
		return path
	}
	users := write("users", fmt.Sprintf("%q %q\n", User, Password()))
	return &Server{Process: livetest.Start(t, livetest.Command{
		Name: "pgbouncer", Path: binary, Ready: ready, Sys: account.Sys(), Quit: syscall.SIGINT, Dir: dir,
		Args: func(own int) []string {
			return []string{write("pgbouncer.ini", fmt.Sprintf(config, host, port, own, users, mode))}
		},
	})}
}

// PoolProgram returns the path of PgBouncer. It skips t if PgBouncer is not installed, or fails it
// if SNIB_REQUIRE names postgres.
func PoolProgram(t testing.TB) string {
	t.Helper()
	return livetest.Binary(t, name, "pgbouncer", "/usr/sbin")
}

// config is the configuration of PgBouncer. Tests have more clients than it has
// server connections, so clients share them. By default, PgBouncer waits for 15 s
// before it connects again to a server that was down.
const config = `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = md5
auth_file = %s
pool_mode = %s
default_pool_size = 10
max_client_conn = 500
server_round_robin = 1
server_login_retry = 1
`

// URL returns the URL of the server.
func (s *Server) URL() string {
	if s.database == "" {
		return URL(s.Addr())
	}
	return strings.Replace(URL(s.Addr()), "/postgres?", "/"+s.database+"?", 1)
}

// URL returns the URL for the server at addr, or for a proxy at addr.
func URL(addr string) string {
	return "postgres://" + User + ":" + Password() + "@" + addr + "/postgres?sslmode=disable"
}

// ready returns nil if clients can log in at addr: a server accepts connections
// before it has recovered.
func ready(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it has answered
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	body := []byte("\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00")
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)); err != nil {
		return err
	}
	for {
		var head [5]byte // kind and length
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		text := make([]byte, max(binary.BigEndian.Uint32(head[1:]), 4)-4)
		if _, err := io.ReadFull(conn, text); err != nil {
			return err
		}
		switch {
		case head[0] == 'Z': // ready for a query
			return nil
		case head[0] == 'R' && len(text) == 8: // it wants the digest of the password, with a salt
			answer := "md5" + digest(digest(Password()+User)+string(text[4:])) + "\x00"
			message := append(binary.BigEndian.AppendUint32([]byte{'p'}, uint32(len(answer)+4)), answer...)
			if _, err := conn.Write(message); err != nil {
				return err
			}
		case head[0] == 'E':
			return fmt.Errorf("it says: %q", text)
		}
	}
}

// digest returns what PostgreSQL's method md5 sends of a text.
func digest(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }
