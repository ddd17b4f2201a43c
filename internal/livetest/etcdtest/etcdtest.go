// Package etcdtest starts real etcd servers for tests, alone or as a cluster.
//
//	server := etcdtest.Start(t)
//	client := dial(t, server.Addr())
//	...
//	cluster := etcdtest.Cluster(t, 3)
//	cluster.Leader().Kill()
//
// A server has a folder of its own, which outlives [livetest.Process.Restart] and goes with the test. For the programs see
// package etcdbin.
package etcdtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest/etcdbin"
)

// Password is that of the user root where [Server.RequireLogin] was called. Tests look for it where it must not be.
const Password = "etcdtest-secret"

// A Server is an etcd server: one that is alone, or the member of a cluster.
type Server struct {
	*livetest.Process

	t      testing.TB
	name   string
	dir    string
	port   int    // for clients
	peer   string // URL where it listens for other members
	reach  string // URL by which other members reach it
	ctl    string // path of etcdctl
	secure bool   // clients speak TLS
	login  bool   // clients say who they are
}

// program returns the path of one of the programs. Where they can't be built what is installed has to do; if nothing is, t is
// skipped, or failed if SNIB_REQUIRE names etcd.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := etcdbin.Path(name)
	if err != nil {
		t.Logf("%v", err)
		return livetest.Binary(t, "etcd", name)
	}
	return path
}

// Start starts an etcd server with the given flags beside its defaults, such as "--max-txn-ops=200". It skips t if there is
// no etcd and none can be built, or fails it if SNIB_REQUIRE names etcd.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	s := newServer(t, "alone")
	s.Process = livetest.Start(t, s.command([]*Server{s}, "new", flags))
	return s
}

// StartSecure is [Start] of a server that speaks TLS with clients, by a certificate for 127.0.0.1 that it has made and
// signed itself: see [Server.Certificate].
func StartSecure(t testing.TB, flags ...string) *Server {
	t.Helper()
	s := newServer(t, "secure")
	s.secure = true
	s.Process = livetest.Start(t, s.command([]*Server{s}, "new", append([]string{"--auto-tls"}, flags...)))
	return s
}

func newServer(t testing.TB, name string) *Server {
	t.Helper()
	peer := "http://127.0.0.1:" + strconv.Itoa(livetest.FreePort(t))
	return &Server{
		t: t, name: name, dir: t.TempDir(), ctl: program(t, "etcdctl"), port: livetest.FreePort(t), peer: peer, reach: peer,
	}
}

// command says how to start s, as one of all.
func (s *Server) command(all []*Server, state string, flags []string) livetest.Command {
	s.t.Helper()
	var cluster []string
	for _, m := range all {
		cluster = append(cluster, m.name+"="+m.reach)
	}
	return livetest.Command{
		Name: "etcd " + s.name, Path: program(s.t, "etcd"), Dir: s.dir, Port: s.port, Ready: s.ready,
		Args: func(port int) []string {
			url := s.scheme() + "://127.0.0.1:" + strconv.Itoa(port)
			return append([]string{
				"--name", s.name, "--data-dir", filepath.Join(s.dir, "data"), "--log-level", "warn",
				"--listen-client-urls", url, "--advertise-client-urls", url,
				"--listen-peer-urls", s.peer, "--initial-advertise-peer-urls", s.reach,
				"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", state,
			}, flags...)
		},
	}
}

func (s *Server) scheme() string {
	if s.secure {
		return "https"
	}
	return "http"
}

// Certificate returns the path of the file by which clients know a server from [StartSecure].
func (s *Server) Certificate() string {
	return filepath.Join(s.dir, "data", "fixtures", "client", "cert.pem")
}

// ready reports whether the server can serve clients: it knows a leader, and a majority agrees.
func (s *Server) ready(addr string) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is asked how it is, and told nothing
	}}
	answer, err := client.Get(s.scheme() + "://" + addr + "/health")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// Ctl runs etcdctl with the given arguments against the server, and returns what it prints. It fails t if etcdctl fails.
func (s *Server) Ctl(args ...string) string {
	s.t.Helper()
	out, err := s.TryCtl(args...)
	if err != nil {
		s.t.Fatalf("etcdctl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// TryCtl is [Server.Ctl] that returns the error.
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
	return exec.CommandContext(ctx, s.ctl, append(own, args...)...)
}

// RequireLogin makes the server refuse clients without a password: from now on there is the user root, with [Password].
func (s *Server) RequireLogin() {
	s.t.Helper()
	s.Ctl("user", "add", "root:"+Password)
	s.Ctl("user", "grant-role", "root", "root")
	s.Ctl("auth", "enable")
	s.login = true
}

// Name is what its cluster calls the server.
func (s *Server) Name() string { return s.name }

// Login reports whether clients have to say who they are.
func (s *Server) Login() bool { return s.login }

// A ClusterSetup is a cluster of servers.
type ClusterSetup struct {
	t       testing.TB
	Members []*Server
	made    int // members so far
}

// Cluster starts a cluster of n members, and returns when all of them are ready.
func Cluster(t testing.TB, n int) *ClusterSetup {
	t.Helper()
	return ClusterThrough(t, n, func(_ int, addr string) string { return addr })
}

// ClusterThrough is [Cluster] whose members reach each other by other addresses than those where they listen, such as those of
// proxies: through returns that of a member.
func ClusterThrough(t testing.TB, n int, through func(member int, addr string) string) *ClusterSetup {
	t.Helper()
	c := &ClusterSetup{t: t}
	for i := range n {
		m := c.newMember()
		m.reach = "http://" + through(i, strings.TrimPrefix(m.peer, "http://"))
		c.Members = append(c.Members, m)
	}
	var commands []livetest.Command
	for _, m := range c.Members {
		commands = append(commands, m.command(c.Members, "new", nil))
	}
	for i, p := range livetest.StartAll(t, commands...) {
		c.Members[i].Process = p
	}
	return c
}

func (c *ClusterSetup) newMember() *Server {
	c.t.Helper()
	c.made++
	return newServer(c.t, fmt.Sprintf("member%d", c.made))
}

// Addrs returns where clients connect to.
func (c *ClusterSetup) Addrs() []string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Addr())
	}
	return all
}

// Restart starts all members again that were killed, at once: alone none of them would be ready.
func (c *ClusterSetup) Restart() {
	var starting sync.WaitGroup
	for _, m := range c.Members {
		if !m.Up() {
			starting.Go(m.Restart)
		}
	}
	starting.Wait()
}

// Leader returns the member that leads at present, once there is one.
func (c *ClusterSetup) Leader() *Server {
	c.t.Helper()
	var leader *Server
	livetest.Await(c.t, "leader", func() (err error) {
		leader, err = c.leader()
		return err
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

func (c *ClusterSetup) leader() (*Server, error) {
	for _, m := range c.Members {
		if !m.Up() {
			continue
		}
		out, err := m.TryCtl("endpoint", "status", "--command-timeout=1s", "-w", "json")
		if err != nil {
			continue // it hangs
		}
		var all []struct {
			Status struct {
				Header struct {
					Member uint64 `json:"member_id"`
				} `json:"header"`
				Leader uint64 `json:"leader"`
			}
		}
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			return nil, err
		}
		if len(all) == 1 && all[0].Status.Leader == all[0].Status.Header.Member {
			return m, nil
		}
	}
	return nil, errors.New("no member says that it leads")
}

// Replace takes a member out of the cluster for good, ends it, and starts a new one in its place, which it returns. Clients
// have to be told of the new address.
func (c *ClusterSetup) Replace(old *Server) *Server {
	c.t.Helper()
	var via *Server
	for _, m := range c.Members {
		if m != old && m.Up() {
			via = m
		}
	}
	// etcd changes its members only when it has seen all of them for some seconds.
	change := func(args ...string) {
		livetest.Await(c.t, "change of the members", func() error {
			_, err := via.TryCtl(append([]string{"member"}, args...)...)
			return err
		})
	}
	old.MayEnd() // as it does when it hears of it, if it is not killed before
	change("remove", c.id(via, old))
	old.Kill()
	fresh := c.newMember()
	change("add", fresh.name, "--peer-urls", fresh.reach)
	for i, m := range c.Members {
		if m == old {
			c.Members[i] = fresh
		}
	}
	fresh.Process = livetest.Start(c.t, fresh.command(c.Members, "existing", nil))
	return fresh
}

// id returns what the cluster calls a member.
func (c *ClusterSetup) id(via, member *Server) string {
	c.t.Helper()
	for line := range strings.Lines(via.Ctl("member", "list")) {
		if fields := strings.Split(line, ", "); len(fields) > 3 && fields[2] == member.name {
			return fields[0]
		}
	}
	c.t.Fatalf("%s is no member", member.name)
	return ""
}
