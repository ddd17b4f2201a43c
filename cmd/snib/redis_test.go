//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// The password of the servers, which must be encoded in a URL, and its encoded form.
const (
	password = "correct/horse@battery:50%"
	encoded  = "correct%2Fhorse%40battery%3A50%25"
)

// commonScripts are the scripts that behave the same on every store. kindScripts are those of
// them that differ most between kinds of Redis.
var (
	commonScripts = []string{"run", "busy", "inspect", "lock", "release", "nested", "completion", "count", "doctor",
		"hold", "also"}
	kindScripts = commonScripts[:3]
)

// TestRedisScripts runs the common scripts on all kinds of Redis.
func TestRedisScripts(t *testing.T) {
	t.Parallel()
	const safe = "min-replicas-to-write 1" // without it there is a warning
	t.Run("Single", func(t *testing.T) {
		t.Parallel()
		node := redistest.Single(t)
		runOnStore(t, commonScripts, "redis://"+node.Addr(), node)
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		node := redistest.Single(t, redistest.TLS, redistest.Password(password))
		url := "rediss://:" + encoded + "@" + node.Addr() + "?ca=" + authorityFile(node)
		runOnStore(t, kindScripts[:1], url, node)
		t.Run("More", func(t *testing.T) { // with TLS, it is the same server
			livetest.Long(t)
			runOnStore(t, kindScripts[1:], url, node)
		})
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.Sentinel(t, redistest.Password(password), redistest.SentinelPassword("horse/stable"), safe)
		runOnStore(t, kindScripts, "redis+sentinel://:"+encoded+"@"+strings.Join(s.Sentinels(), ",")+"/"+s.MasterName()+
			"?sentinel-password=horse%2Fstable", s.Master())
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.Cluster(t, redistest.Password(password), safe)
		// Without grace, because what a server knows of itself is in one slot.
		runOnStore(t, kindScripts, "redis+cluster://:"+encoded+"@"+strings.Join(c.Addrs()[:2], ",")+"?failover-grace=off", c.Nodes()[:3]...)
	})
}

// TestRedis runs the scripts about Redis. Each has its own servers in its environment.
func TestRedis(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join("testdata", "redis", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	lossy := redistest.Single(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru").Used()
	secure := redistest.Single(t, redistest.TLS, redistest.Password(password)).Used()
	secret := redistest.Single(t, redistest.Password(password),
		fmt.Sprintf("user alice on >%s ~* &* +@all -info", password), fmt.Sprintf("user bob on >%s ~* &* +@all -evalsha", password)).Used()
	sentinel := redistest.Sentinel(t, redistest.Password(password), redistest.SentinelPassword(password), "min-replicas-to-write 1")
	hung := redistest.Single(t)
	hung.Hang()
	aof := redistest.SingleAOF(t, "appendfsync always").Used()
	for _, script := range scripts {
		// The script begins when this function returns.
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			node := redistest.Single(t).Used()
			p := testscript.Params{Files: []string{script}, Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"redis": func(ts *testscript.TestScript, _ bool, args []string) { sendRedis(ts, node, args) },
			}}
			_, port, _ := strings.Cut(node.Addr(), ":")
			runScripts(t, p, "SNIB_URL=redis://"+node.Addr(), "REDIS="+node.Addr(), "PORT="+port, "ENCODED="+encoded,
				"REDIS_SECRET="+secret.Addr(), "REDIS_TLS="+secure.Addr(), "CA="+authorityFile(secure), "LOSSY="+lossy.Addr(),
				"FRESH="+redistest.Single(t).Addr(), "HUNG="+hung.Addr(), "AOF="+aof.Addr(),
				"SENTINELS="+strings.Join(sentinel.Sentinels(), ","), "MASTER="+sentinel.MasterName(), "OLD="+oldRedis(t))
		})
	}
}

// sendRedis implements the script command "redis ARG…". It sends a command to the script's
// server and prints the answer.
func sendRedis(ts *testscript.TestScript, n *redistest.Node, args []string) {
	var command []any
	for _, arg := range args {
		command = append(command, arg)
	}
	answer, err := n.Do(command...)
	ts.Check(err)
	fmt.Fprintln(ts.Stdout(), answer)
}

// oldRedis returns the address of a server that claims to be Redis 6.0, and
// knows hardly any command.
func oldRedis(t *testing.T) string {
	t.Helper()
	return livetest.Fake(t, func(conn net.Conn) {
		for in := bufio.NewScanner(conn); in.Scan(); { // one line per argument
			switch in.Text() {
			case "HELLO":
				fmt.Fprint(conn, "%2\r\n$7\r\nversion\r\n$6\r\n6.0.16\r\n$5\r\nproto\r\n:3\r\n")
			case "CLUSTER":
				fmt.Fprint(conn, "-ERR This instance has cluster support disabled\r\n")
			case "SETINFO":
				fmt.Fprint(conn, "-ERR unknown subcommand\r\n")
			case "INFO":
				const info = "redis_version:6.0.16\r\nrun_id:1234567890123456789012345678901234567890\r\n"
				fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(info), info)
			}
		}
	})
}

// runOnStore runs the scripts one after the other, each on an empty store.
func runOnStore(t *testing.T, scripts []string, url string, masters ...*redistest.Node) {
	t.Helper()
	for _, name := range scripts {
		for _, m := range masters {
			// A master counts its replicas once a second, and refuses writes before that.
			livetest.Await(t, "empty store", func() error { _, err := m.Do("FLUSHALL"); return err })
		}
		if len(masters) == 1 {
			masters[0].Used()
		}
		t.Run(name, func(t *testing.T) { // the script begins when this function returns
			runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "script", name+".txtar")}},
				"SNIB_URL="+url)
		})
		for _, m := range masters {
			if keys := m.Must("KEYS", "snib.q:*").([]any); len(keys) > 0 {
				t.Errorf("after %s nobody waits, and there is %v", name, keys)
			}
		}
	}
}

// authorityFile returns the file of the authority that signed a server's certificate.
func authorityFile(n *redistest.Node) string {
	answer := n.Must("CONFIG", "GET", "tls-ca-cert-file").([]any)
	return fmt.Sprint(answer[1])
}
