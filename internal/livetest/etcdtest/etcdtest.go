// Package etcdtest starts real etcd servers for tests, alone or as a cluster.
//
//	server := etcdtest.Start(t)
//	client := dial(t, server.Addr())
//	...
//	cluster := etcdtest.Cluster(t, 3)
//	cluster.Leader().Kill()
//
// A server has its own data folder, which survives [livetest.Process.Restart] and is removed
// with the test. The programs are built from their Go modules, in the versions in servers.mod, and
// kept in the user's cache folder.
package etcdtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// Password is the password of the user root after [Server.RequireLogin]. Tests look
// for it where it must not appear.
const Password = "etcdtest-secret"

// A Server is an etcd server: a stand-alone one, or a member of a cluster.
type Server struct {
	*livetest.Process

	t            testing.TB
	name         string
	dir          string
	port         int    // for clients
	listenURL    string // the URL where it listens for other members
	advertiseURL string // the URL at which other members reach it
	etcd         string // path of the program
	etcdctl      string // likewise
	secure       bool   // clients use TLS
	login        bool   // clients must log in
	flags        []string
}

// These flags are not for etcd: with Installed, the etcd that is installed is started, and none is
// built; it has no [Server.Ctl]. With Secure, clients use TLS; the server creates a self-signed
// certificate for 127.0.0.1, see [Server.Certificate].
const (
	Installed = "etcdtest-installed"
	Secure    = "etcdtest-secure"
)

// Start starts an etcd server with the given flags in addition to its defaults, such
// as "--max-txn-ops=200". It skips t if there is no etcd and none can be built, or
// fails it if SNIB_REQUIRE names etcd.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	s := newServer(t, "alone", flags)
	s.Process = livetest.Start(t, s.command([]*Server{s}))
	return s
}

// Program returns the path of the etcd that is installed. It skips t if there is none, or fails
// it if SNIB_REQUIRE names etcd.
func Program(t testing.TB) string {
	t.Helper()
	return livetest.Binary(t, "etcd", "etcd")
}

// Built returns the path of the etcd that [Start] starts.
func Built(t testing.TB) string {
	t.Helper()
	return program(t, "etcd")
}

func newServer(t testing.TB, name string, flags []string) *Server {
	t.Helper()
	listenURL := "http://127.0.0.1:" + strconv.Itoa(livetest.FreePort(t))
	s := &Server{
		t: t, name: name, dir: t.TempDir(), port: livetest.FreePort(t), listenURL: listenURL, advertiseURL: listenURL,
		secure: slices.Contains(flags, Secure),
	}
	if slices.Contains(flags, Installed) {
		s.etcd = Program(t)
	} else {
		s.etcd, s.etcdctl = program(t, "etcd"), program(t, "etcdctl")
	}
	if s.secure {
		s.flags = append(s.flags, "--auto-tls")
	}
	s.flags = append(s.flags, slices.DeleteFunc(slices.Clone(flags),
		func(flag string) bool { return flag == Installed || flag == Secure })...)
	return s
}

// command returns the command that starts s as one of all members.
func (s *Server) command(all []*Server) livetest.Command {
	s.t.Helper()
	var cluster []string
	for _, m := range all {
		cluster = append(cluster, m.name+"="+m.advertiseURL)
	}
	return livetest.Command{
		Name: "etcd " + s.name, Path: s.etcd, Dir: s.dir, Port: s.port, Ready: s.ready,
		Args: func(port int) []string {
			url := s.scheme() + "://127.0.0.1:" + strconv.Itoa(port)
			return append([]string{
				"--name", s.name, "--data-dir", filepath.Join(s.dir, "data"), "--log-level", "warn",
				"--listen-client-urls", url, "--advertise-client-urls", url,
				"--listen-peer-urls", s.listenURL, "--initial-advertise-peer-urls", s.advertiseURL,
				"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new",
			}, s.flags...)
		},
	}
}

func (s *Server) scheme() string {
	if s.secure {
		return "https"
	}
	return "http"
}

// Certificate returns the path of the certificate of a server with [Secure].
func (s *Server) Certificate() string {
	return filepath.Join(s.dir, "data", "fixtures", "client", "cert.pem")
}

// ready returns nil if the server can serve clients: it knows a leader, and a majority is
// available. It speaks HTTP by hand, because sniblab starts etcd and has no other use for
// net/http's client, which takes 0.4 MB.
func (s *Server) ready(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it has answered
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if s.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is asked how it is, and told nothing
	}
	if _, err := io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if fields := strings.Fields(status); len(fields) < 2 || fields[1] != "200" {
		return fmt.Errorf("its health: %q", status)
	}
	return nil
}

// Ctl runs etcdctl with the given arguments against the server, and returns what it
// prints. It fails t if etcdctl fails.
func (s *Server) Ctl(args ...string) string {
	s.t.Helper()
	out, err := s.TryCtl(args...)
	livetest.Must(s.t, err, "etcdctl %s", strings.Join(args, " "))
	return out
}

// TryCtl is [Server.Ctl], but returns the error.
func (s *Server) TryCtl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	out, err := s.Command(ctx, args...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(failed.Stderr)))
	}
	return string(out), err
}

// Command returns etcdctl with the given arguments, ready to run.
func (s *Server) Command(ctx context.Context, args ...string) *exec.Cmd {
	own := []string{"--endpoints", s.scheme() + "://" + s.Addr()}
	if s.secure {
		own = append(own, "--cacert", s.Certificate())
	}
	if s.login {
		own = append(own, "--user", "root:"+Password)
	}
	return exec.CommandContext(ctx, s.etcdctl, append(own, args...)...)
}

// RequireLogin creates the user root with [Password], and makes the server refuse
// clients without a login.
func (s *Server) RequireLogin() {
	s.t.Helper()
	s.Ctl("user", "add", "root:"+Password)
	s.Ctl("user", "grant-role", "root", "root")
	s.Ctl("auth", "enable")
	s.login = true
}

// Login reports whether clients must log in.
func (s *Server) Login() bool { return s.login }

// A ClusterSetup is a cluster of servers.
type ClusterSetup struct {
	t       testing.TB
	Members []*Server
}

// Cluster starts a cluster of n members with the given flags, and returns when all of them are
// ready.
func Cluster(t testing.TB, n int, flags ...string) *ClusterSetup {
	t.Helper()
	return ClusterThrough(t, n, func(_ int, addr string) string { return addr }, flags...)
}

// ClusterThrough is [Cluster], but the members reach each other at other addresses than those
// where they listen, such as those of proxies. through is called with the address of a member,
// and returns the address at which others reach it.
func ClusterThrough(t testing.TB, n int, through func(member int, addr string) string, flags ...string) *ClusterSetup {
	t.Helper()
	c := &ClusterSetup{t: t}
	for i := range n {
		m := newServer(t, fmt.Sprintf("member%d", i+1), flags)
		m.advertiseURL = "http://" + through(i, strings.TrimPrefix(m.listenURL, "http://"))
		c.Members = append(c.Members, m)
	}
	var commands []livetest.Command
	for _, m := range c.Members {
		commands = append(commands, m.command(c.Members))
	}
	for i, p := range livetest.StartAll(t, commands...) {
		c.Members[i].Process = p
	}
	return c
}

// Addrs returns the addresses for clients.
func (c *ClusterSetup) Addrs() []string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Addr())
	}
	return all
}

// Restart restarts all members that are not up, at the same time: none of them
// would be ready alone.
func (c *ClusterSetup) Restart() {
	var starting sync.WaitGroup
	for _, m := range c.Members {
		if !m.Up() {
			starting.Go(m.Restart)
		}
	}
	starting.Wait()
}

// Leader waits until a member leads, and returns it.
func (c *ClusterSetup) Leader() *Server {
	c.t.Helper()
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var leader *Server
	livetest.Await(c.t, "leader", func() error {
		for _, m := range c.Members {
			if !m.Up() {
				continue
			}
			res, err := client.Get("http://" + m.Addr() + "/metrics")
			if err != nil {
				continue // it may hang
			}
			text, err := io.ReadAll(res.Body)
			_ = res.Body.Close() // it has answered
			if err == nil && strings.Contains(string(text), "\netcd_server_is_leader 1\n") {
				leader = m
				return nil
			}
		}
		return errors.New("no member says that it leads")
	})
	return leader
}

// Follower returns a member that does not lead.
func (c *ClusterSetup) Follower() *Server {
	c.t.Helper()
	leader := c.Leader()
	for _, m := range c.Members {
		if m != leader && m.Up() {
			return m
		}
	}
	c.t.Fatalf("no member follows")
	return nil
}
