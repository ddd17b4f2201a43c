// Package redistest starts Redis for tests: one server ([Single]), a master with a
// replica and Sentinels ([Sentinel]), or a cluster ([Cluster]). It contains just
// enough of a Redis client to control them.
//
//	node := redistest.Single(t, redistest.Password("hush"), "maxmemory 10mb")
//	node.Must("SET", "key", "value")
//	node.Hang()
//
//	s := redistest.Sentinel(t)
//	old := s.KillMaster()
//	master := s.WaitForFailover(old)
//
//	c := redistest.Cluster(t)
//	move := c.BeginMove(slot, to) // its keys are redirected with ASK
//	move.Finish()                 // and now with MOVED
//
// Servers are configured by lines of redis.conf, which follow the lines of this
// package. By default they save nothing: a server that was killed or stopped has
// lost all data when it is back.
//
// A test is skipped if redis-server is not installed, and fails if SNIB_REQUIRE names redis. The
// environment variable SNIB_REDIS chooses another server, such as Redis-8.2.3: see [Servers].
package redistest

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// TLS is a line of configuration for [Single]: the server accepts only TLS. Its
// certificate is for 127.0.0.1 and localhost, and signed by the one in the file
// [livetest.AuthorityFile] of its folder. It does not ask clients for certificates.
const TLS = "redistest-tls yes"

// Password returns lines of configuration that require a password from clients. Replicas,
// nodes of a cluster and Sentinels use it too.
func Password(password string) string {
	return fmt.Sprintf("requirepass %q\nmasterauth %q", password, password)
}

// SentinelPassword returns a line of configuration for [Sentinel]: the Sentinels
// require this password.
func SentinelPassword(password string) string {
	return fmt.Sprintf("redistest-sentinel-password %q", password)
}

// A Node is a running Redis server, or a Sentinel.
type Node struct {
	*livetest.Process

	t        testing.TB
	password string
	tls      *tls.Config // nil without TLS
}

// Single starts a stand-alone Redis server.
func Single(t testing.TB, conf ...string) *Node {
	t.Helper()
	return start(t, newSpec(t, "redis", conf))[0]
}

// A nodeSpec describes a node to start.
type nodeSpec struct {
	name     string
	dir      string
	port     int // 0 for any
	lines    []string
	args     []string // after the configuration file
	password string
	tls      *tls.Config
	server   string // path of the program; "" for the one in the PATH

	sentinelPassword string
}

// newSpec returns the specification of a server with the default settings, followed
// by those of conf.
func newSpec(t testing.TB, name string, conf []string) *nodeSpec {
	s := &nodeSpec{name: name, dir: t.TempDir()}
	s.add(
		`save ""`,
		`appendonly no`,
		`repl-diskless-sync yes`,
		`repl-diskless-sync-delay 0`,
		`repl-ping-replica-period 1`,
	)
	for line := range strings.SplitSeq(strings.Join(conf, "\n"), "\n") {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		switch key {
		case "redistest-sentinel-password":
			s.sentinelPassword = value
			continue
		case "redistest-server":
			s.server = value
			continue
		case "redistest-tls":
			s.tls = livetest.Certify(t, s.dir)
			continue
		case "requirepass":
			s.password = value
		case "enable-debug-command":
			if !AtLeast(t, 7, 0) { // before 7.0 it is always allowed
				continue
			}
		}
		s.add(line)
	}
	return s
}

func (s *nodeSpec) add(lines ...string) { s.lines = append(s.lines, lines...) }

// conf returns the contents of redis.conf for a port.
func (s *nodeSpec) conf(port int) string {
	lines := []string{
		"bind 127.0.0.1",
		fmt.Sprintf("dir %q", s.dir),
	}
	if s.tls == nil {
		lines = append(lines, fmt.Sprintf("port %d", port))
	} else {
		lines = append(lines,
			"port 0",
			fmt.Sprintf("tls-port %d", port),
			fmt.Sprintf("tls-cert-file %q", filepath.Join(s.dir, livetest.CertFile)),
			fmt.Sprintf("tls-key-file %q", filepath.Join(s.dir, livetest.KeyFile)),
			fmt.Sprintf("tls-ca-cert-file %q", filepath.Join(s.dir, livetest.AuthorityFile)),
			"tls-auth-clients no",
		)
	}
	return strings.Join(append(lines, s.lines...), "\n") + "\n"
}

// Program returns the path of the server that SNIB_REDIS names, or of the first redis-server in the
// PATH. Valkey's works too if it has that name. If there is none, Program skips t, or fails it if
// SNIB_REQUIRE names redis.
func Program(t testing.TB) string {
	t.Helper()
	if s, ok := chosen(t); ok {
		return s.program(t)
	}
	return livetest.Binary(t, "redis", "redis-server")
}

// needTLS skips t if a server was built without TLS. It fails t if that is the server in the PATH,
// and SNIB_REQUIRE names redis.
func needTLS(t testing.TB, path string) {
	t.Helper()
	// The server ends at once: it has no certificate. Only one with TLS says so.
	out, err := exec.Command(path, "--port", "0", "--tls-port", "1").CombinedOutput()
	switch {
	case err == nil:
		t.Fatalf("%s has started with TLS, and without a certificate", path)
	case strings.Contains(string(out), "tls-cert-file"):
		return
	}
	if s, ok := chosen(t); ok {
		t.Skipf("the server %s is built without TLS", s)
	}
	livetest.Missing(t, "redis", path+" is built without TLS")
}

// AtLeast reports whether redis-server has at least the given version.
func AtLeast(t testing.TB, major, minor int) bool {
	t.Helper()
	text, err := exec.Command(Program(t), "--version").Output()
	livetest.Must(t, err, "ask redis-server for its version")
	var a, b int
	_, version, _ := strings.Cut(string(text), " v=")
	if _, err := fmt.Sscanf(version, "%d.%d.", &a, &b); err != nil {
		t.Fatalf("redis-server --version says %q: %v", text, err)
	}
	return a > major || a == major && b >= minor
}

// start starts all nodes at the same time.
func start(t testing.TB, specs ...*nodeSpec) []*Node {
	t.Helper()
	nodes, commands := make([]*Node, len(specs)), make([]livetest.Command, len(specs))
	for i, s := range specs {
		path := s.server
		if path == "" {
			path = Program(t)
		}
		if s.tls != nil {
			needTLS(t, path)
		}
		n := &Node{t: t, password: s.password, tls: s.tls}
		file := filepath.Join(s.dir, "redis.conf")
		nodes[i], commands[i] = n, livetest.Command{
			Name: s.name,
			Path: path,
			Port: s.port,
			Dir:  s.dir,
			Args: func(port int) []string {
				if err := os.WriteFile(file, []byte(s.conf(port)), 0o600); err != nil {
					// The server will report the missing file.
					t.Errorf("configure %s: %v", s.name, err)
				}
				return append([]string{file}, s.args...)
			},
			Ready: n.ready,
		}
	}
	for i, p := range livetest.StartAll(t, commands...) {
		nodes[i].Process = p
	}
	return nodes
}

// ready is the node's [livetest.Command.Ready].
func (n *Node) ready(addr string) error {
	_, err := n.do(addr, "PING")
	if no, ok := err.(Error); ok && no.isDenied() { //nolint:errorlint // do returns it as it is
		// The server is ready: users are configured, and the default one may not do this.
		return nil
	}
	return err
}

// authorized returns commands for a new connection.
func (n *Node) authorized(commands ...[]any) [][]any {
	if n.password == "" {
		return commands
	}
	return slices.Concat([][]any{{"AUTH", n.password}}, commands)
}

// Crowd cuts all connections, and accepts no others until disperse is called. TLS is not supported.
func (n *Node) Crowd() (disperse func()) {
	n.t.Helper()
	conn, err := net.Dial("tcp", n.Addr())
	livetest.Must(n.t, err, "connect")
	kill := []any{"CLIENT", "KILL", "TYPE"} // all but our own
	if _, err = exchange(conn, n.authorized([]any{"CONFIG", "SET", "maxclients", 1}, append(kill[:3:3], "normal"),
		append(kill, "pubsub"))...); err != nil {
		n.t.Fatalf("refuse clients: %v", err)
	}
	return func() {
		n.t.Helper()
		defer func() { _ = conn.Close() }() // the outcome is known already
		if _, err := exchange(conn, []any{"CONFIG", "SET", "maxclients", 10_000}); err != nil {
			n.t.Fatalf("accept clients again: %v", err)
		}
	}
}

// Must is [Node.Do], but fails the test instead of returning an error.
func (n *Node) Must(args ...any) any {
	n.t.Helper()
	answer, err := n.Do(args...)
	livetest.Must(n.t, err, "%v at %s", args[0], n.Addr())
	return answer
}

// URL returns the node's address with its password, as redis:// or rediss://.
func (n *Node) URL() string {
	u := url.URL{Scheme: "redis", Host: n.Addr()}
	if n.tls != nil {
		u.Scheme = "rediss"
	}
	if n.password != "" {
		u.User = url.UserPassword("", n.password)
	}
	return u.String()
}

// Info returns the fields of a section of INFO.
func (n *Node) Info(section string) map[string]string {
	n.t.Helper()
	fields, err := n.Fields("INFO", section)
	livetest.Must(n.t, err, "INFO at %s", n.Addr())
	return fields
}

// Calls returns how often each command was called, including those that scripts called.
func (n *Node) Calls() map[string]int {
	n.t.Helper()
	calls := map[string]int{}
	for name, stats := range n.Info("commandstats") {
		count, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		calls[strings.TrimPrefix(name, "cmdstat_")], _ = strconv.Atoi(count)
	}
	return calls
}

// RunID returns the id of the server's run, which changes when it restarts.
func (n *Node) RunID() string {
	n.t.Helper()
	return n.Info("server")["run_id"]
}

// Used makes the server look as if it had kept locks of redislock for a long time. Otherwise the
// driver would get no lock before the server is older than the TTL.
func (n *Node) Used() *Node {
	n.t.Helper()
	n.Must("HSET", "snib.m", "r", n.RunID(), "c", 0, "x", 0)
	return n
}

// AwaitFullDisk waits until the server has noticed that its disk is full: it then answers PING with
// an error. It writes a key to notice that.
func (n *Node) AwaitFullDisk(key string) {
	n.t.Helper()
	livetest.Await(n.t, "error of PING", func() error {
		_, _ = n.Do("SET", key, 1)
		if _, err := n.Do("PING"); err == nil || !strings.HasPrefix(err.Error(), "MISCONF") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
}

// Fields returns the fields of the answer to a command such as INFO or CLUSTER INFO.
func (n *Node) Fields(command ...any) (map[string]string, error) {
	answer, err := n.Do(command...)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	text, _ := answer.(string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}

// nodeAt returns the node with an address, or nil.
func nodeAt(nodes []*Node, addr string) *Node {
	for _, n := range nodes {
		if n.Addr() == addr {
			return n
		}
	}
	return nil
}

func addrs(nodes []*Node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Addr())
	}
	return all
}

func up(nodes []*Node) []*Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return !n.Up() })
}

// checkSynced returns nil if every replica that is up has all data of its master.
func checkSynced(nodes []*Node) error {
	all := map[string]map[string]string{}
	for _, n := range up(nodes) {
		fields, err := n.Fields("INFO", "replication")
		if err != nil {
			return err
		}
		all[n.Addr()] = fields
	}
	for addr, fields := range all {
		if fields["role"] != "slave" {
			continue
		}
		master := net.JoinHostPort(fields["master_host"], fields["master_port"])
		if fields["master_link_status"] != "up" {
			return fmt.Errorf("replica %s has no link to its master %s", addr, master)
		}
		// The offset is 0 if the master is not up.
		want, _ := strconv.ParseInt(all[master]["master_repl_offset"], 10, 64)
		if got, _ := strconv.ParseInt(fields["slave_repl_offset"], 10, 64); got < want {
			return fmt.Errorf("replica %s is at %d, its master %s at %d", addr, got, master, want)
		}
	}
	return nil
}
