// Package zktest starts real ZooKeeper servers for tests: a stand-alone server, or an ensemble.
//
//	e := zktest.Ensemble(t)
//	client := dial(t, e.Addrs()...)
//	e.Leader().Kill()
//	next := e.Leader() // waits for the election
//
// A server has its own data folder, which survives [livetest.Process.Restart] and is removed
// with the test. It has a small heap, has ticks of 100 ms, so that sessions can be short, and
// does not wait for the disk. On Debian, the package zookeeper contains all that is needed.
package zktest

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// name is the name of ZooKeeper in SNIB_REQUIRE.
const name = "zookeeper"

// Tick is the servers' tickTime: session timeouts are at least two ticks, and
// sessions end up to one tick late.
const Tick = 100 * time.Millisecond

// jars are the paths of ZooKeeper on Debian. Its manifest names most of what it needs.
var jars = [...]string{
	"/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar", "/usr/share/java/netty-codec.jar",
	"/usr/share/java/netty-resolver.jar", "/usr/share/java/netty-transport-native-unix-common.jar",
}

// A Server is a ZooKeeper server.
type Server struct {
	*livetest.Process
	dir    string
	secure string      // the address for TLS; "" without TLS
	tls    *tls.Config // for clients
}

// TLS is a line of configuration that makes a server listen on a second port, see [Server.Secure].
const TLS = "zktest-tls"

// Production is a line of configuration that makes a server run as it does in production: it waits
// for the disk, and has no options for a quick start.
const Production = "zktest-production"

// Secure returns the TLS address of a server with [TLS], and the configuration for clients.
func (s *Server) Secure() (addr string, conf *tls.Config) { return s.secure, s.tls.Clone() }

// Authority returns the file with the authority that signed the certificate of a
// server with [TLS].
func (s *Server) Authority() string { return filepath.Join(s.dir, livetest.AuthorityFile) }

// secureLines sets TLS up and returns its lines of configuration.
func (s *Server) secureLines(t testing.TB) []string {
	t.Helper()
	s.tls = livetest.Certify(t, s.dir)
	port := livetest.FreePort(t)
	s.secure = fmt.Sprint("127.0.0.1:", port)
	var both []byte
	for _, file := range []string{livetest.CertFile, livetest.KeyFile} {
		text, err := os.ReadFile(filepath.Join(s.dir, file))
		livetest.Must(t, err, "configure zookeeper")
		both = append(both, text...)
	}
	return []string{
		fmt.Sprintf("secureClientPort=%d", port), "secureClientPortAddress=127.0.0.1", "ssl.clientAuth=none",
		"ssl.keyStore.location=" + write(t, s.dir, "server.pem", string(both)),
	}
}

// Single starts a stand-alone server with the given lines of configuration.
func Single(t testing.TB, conf ...string) *Server {
	t.Helper()
	return start(t, 1, func(_ int, addr string) string { return addr }, conf)[0]
}

// A Cluster is an ensemble of servers.
type Cluster struct {
	t       testing.TB
	Servers []*Server
}

// Ensemble starts three servers that elect a leader.
func Ensemble(t testing.TB, conf ...string) *Cluster {
	t.Helper()
	return EnsembleThrough(t, func(_ int, addr string) string { return addr }, conf...)
}

// EnsembleThrough is [Ensemble], but the servers reach each other at other addresses than those
// where they listen, such as those of proxies. through is called with the address of each of a
// server's two ports, and returns the address at which others reach it. A server that was
// contacted for an election may connect back to the other one's own address.
func EnsembleThrough(t testing.TB, through func(server int, addr string) string, conf ...string) *Cluster {
	t.Helper()
	return &Cluster{t: t, Servers: start(t, 3, through, conf)}
}

func start(t testing.TB, n int, through func(server int, addr string) string, conf []string) []*Server {
	t.Helper()
	java := Java(t)
	var own, reach []string // the configuration line of each server, for itself and for the others
	for i := range n {
		addrs := [2]string{}
		ports := [2]string{}
		for j := range addrs {
			port := strconv.Itoa(livetest.FreePort(t))
			addrs[j] = "127.0.0.1:" + port
			_, via, err := net.SplitHostPort(through(i, addrs[j]))
			livetest.Must(t, err, "address of a proxy")
			ports[j] = via
		}
		own = append(own, fmt.Sprintf("server.%d=%s:%s", i+1, addrs[0], strings.TrimPrefix(addrs[1], "127.0.0.1:")))
		reach = append(reach, fmt.Sprintf("server.%d=127.0.0.1:%s:%s", i+1, ports[0], ports[1]))
	}
	servers, commands := make([]*Server, n), make([]livetest.Command, n)
	for i := range n {
		dir := t.TempDir()
		write(t, dir, "myid", strconv.Itoa(i+1))
		s := &Server{dir: dir}
		var peers []string
		if n > 1 {
			peers = slices.Clone(reach)
			peers[i] = own[i]
		}
		lines := slices.Concat(peers, slices.DeleteFunc(slices.Clone(conf),
			func(line string) bool { return line == TLS || line == Production }))
		if slices.Contains(conf, TLS) {
			lines = append(lines, s.secureLines(t)...)
		}
		servers[i], commands[i] = s, livetest.Command{
			Name: name, Path: java, Dir: dir, Ready: s.ready, Port: livetest.FreePort(t),
			Args: func(port int) []string {
				file := write(t, dir, "zoo.cfg", fmt.Sprintf(config, Tick.Milliseconds(), dir, port)+strings.Join(lines, "\n")+"\n")
				return append(options(slices.Contains(conf, Production)), "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
			},
		}
	}
	for i, p := range livetest.StartAll(t, commands...) {
		servers[i].Process = p
	}
	return servers
}

// config is the configuration of a server; the parameters are tickTime, its folder and its
// port. Followers may be silent for three seconds.
const config = `tickTime=%d
dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
initLimit=50
syncLimit=30
maxSessionTimeout=60000
maxClientCnxns=0
4lw.commands.whitelist=srvr,wchs
admin.enableServer=false
`

// options returns the options of the virtual machine.
func options(production bool) []string {
	all := []string{"-cp", strings.Join(jars[:], ":"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"}
	if production {
		return append(all, "-Xmx256m")
	}
	return append(all, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64", "-Dzookeeper.cnxTimeout=500",
		"-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"-Dznode.container.checkIntervalMs=500")
}

// Java returns the path of java. It skips t if Java or ZooKeeper is not installed, or
// fails it if SNIB_REQUIRE names zookeeper.
func Java(t testing.TB) string {
	t.Helper()
	// The script is not run; it shows that ZooKeeper is installed.
	livetest.Binary(t, name, "zkServer.sh", "/usr/share/zookeeper/bin")
	return livetest.Binary(t, name, "java")
}

func write(t testing.TB, dir, file, text string) string {
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Errorf("configure zookeeper: %v", err) // the server will report the missing file
	}
	return path
}

// ready is a [livetest.Command.Ready]: a server is ready when it has found a leader. With TLS it
// has also completed a handshake: the first one of a virtual machine takes seconds if the machine
// is busy.
func (s *Server) ready(addr string) error {
	if _, err := mode(addr); err != nil || s.tls == nil {
		return err
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: livetest.Patience}, "tcp", s.secure, s.tls)
	if err != nil {
		return err
	}
	return conn.Close()
}

// mode returns the mode of the server at addr: "standalone", "leader" or "follower".
func mode(addr string) (string, error) {
	text, err := sendCommand(addr, "srvr")
	if err != nil {
		return "", err
	}
	_, after, ok := strings.Cut(text, "Mode: ")
	if !ok {
		return "", fmt.Errorf("it says: %q", text)
	}
	found, _, _ := strings.Cut(after, "\n")
	return found, nil
}

// Watches returns how many watches a server has for its clients, and on how many nodes.
func (s *Server) Watches(t testing.TB) (watches, nodes int) {
	t.Helper()
	text, err := sendCommand(s.Addr(), "wchs")
	livetest.Must(t, err, "watches of zookeeper")
	var clients int
	if _, err := fmt.Sscanf(text, "%d connections watching %d paths\nTotal watches:%d", &clients, &nodes,
		&watches); err != nil {
		t.Fatalf("watches of zookeeper: it says %q", text)
	}
	return watches, nodes
}

// answerTimeout is how long a server may take to answer a command. It takes milliseconds on an idle
// machine.
const answerTimeout = 5 * time.Second

// sendCommand sends a four-letter command and returns the answer.
func sendCommand(addr, command string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, answerTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // it has answered
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// Addrs returns the addresses of the servers.
func (c *Cluster) Addrs() []string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.Addr())
	}
	return all
}

// Leader waits until there is a leader, and returns it.
func (c *Cluster) Leader() *Server {
	c.t.Helper()
	var leader *Server
	livetest.Await(c.t, "leader", func() error {
		for _, s := range c.Servers {
			if !s.Up() {
				continue
			}
			if found, err := mode(s.Addr()); err == nil && found == "leader" {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("no server that is up says that it leads")
	})
	return leader
}

// Followers waits until there is a leader, and returns the other servers that are up.
func (c *Cluster) Followers() []*Server {
	c.t.Helper()
	leader := c.Leader()
	return slices.DeleteFunc(slices.Clone(c.Servers), func(s *Server) bool { return s == leader || !s.Up() })
}
