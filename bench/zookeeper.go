package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/zklock"
)

// zookeeper compares go-zookeeper's Lock with ours on its own ZooKeeper server, which
// waits for the disk. It measures the cost of our checks: that the node is ours and still
// exists, and that the session is alive.
func zookeeper() scenario {
	return scenario{
		name:   "zookeeper",
		server: startZooKeeper,
		variants: []variant{
			{name: "1 goroutine, same key", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 3 * time.Second,
				targets: []target{{column: "ops/s", relativeTo: best, op: "≥", bound: 1}}},
			{name: "2 processes, 1 ms held", procs: 2, load: load{Goroutines: 1, Hold: time.Millisecond}, window: 3 * time.Second,
				targets: []target{
					{column: "ops/s", relativeTo: best, op: "≥", bound: 1},
					{column: "cross gap p50 µs", relativeTo: "go-zookeeper", op: "≤", bound: 1},
				}},
		},
		columns: []column{
			perSecond(),
			waited("acq p50 µs", 50, time.Microsecond), waited("p95", 95, time.Microsecond), waited("p99", 99, time.Microsecond),
			gap("cross gap p50 µs", 50, true), gap("p95 gap µs", 95, false), crossShare(),
			overlaps(), allocsPerOp(), clientCPUPerOp(),
		},
		ratio: true,
	}
}

// zkScheme is the prefix of the address of a ZooKeeper server in a setup.
const zkScheme = "zk://"

// startZooKeeper starts a server from Debian's packages, and returns when it answers.
func startZooKeeper(ctx context.Context) (addr string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "snib-bench-")
	if err != nil {
		return "", nil, err
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	addr = net.JoinHostPort("127.0.0.1", port)
	conf := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", dir, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.Command("java", "-Xmx256m", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", conf)
	cmd.SysProcAttr = childAttributes()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("a ZooKeeper server is needed (Debian: apt install zookeeper): %w", err), os.RemoveAll(dir))
	}
	stop = func() {
		_ = cmd.Process.Kill() // its data is deleted anyway
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if err = checkServing(addr); err != nil {
			continue
		}
		if err = warmUp(addr); err != nil {
			break
		}
		return zkScheme + addr, stop, nil
	}
	stop()
	return "", nil, fmt.Errorf("the ZooKeeper server did not start: %w\n%s", cmp.Or(ctx.Err(), err), out.Bytes())
}

// checkServing returns an error if the server does not serve yet. A server listens before it
// serves, and go-zookeeper would then wait minutes for its answer.
func checkServing(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it was only asked
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !bytes.Contains(answer, []byte("Mode: ")) {
		err = fmt.Errorf("it does not serve yet: %q", answer)
	}
	return err
}

// warmUp lets the server's virtual machine compile its code, which would otherwise
// slow the first peer down.
func warmUp(addr string) error {
	c, err := openGoZooKeeper(setup{addr: addr})
	if err != nil {
		return err
	}
	defer c.close()
	caller := c.caller()
	for began := time.Now(); time.Since(began) < time.Second; {
		if err := caller.acquire(context.Background(), "warm-up"); err != nil {
			return err
		}
		if err := caller.release(); err != nil {
			return err
		}
	}
	return nil
}

func openSnibZooKeeper(s setup) (*client, error) {
	d, err := zklock.New([]string{strings.TrimPrefix(s.addr, zkScheme)})
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

// go-zookeeper: with a new Lock for each acquisition, because two goroutines can't share one.

func openGoZooKeeper(s setup) (*client, error) {
	conn, events, err := zk.Connect([]string{strings.TrimPrefix(s.addr, zkScheme)}, 15*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	return &client{
		caller: func() caller { return &goZooKeeperCaller{conn: conn} },
		close:  conn.Close,
	}, nil
}

type goZooKeeperCaller struct {
	conn *zk.Conn
	lock *zk.Lock
}

// acquire ignores its context, because go-zookeeper's Lock does not support contexts. It
// returns nevertheless: after the window, the other process still releases.
func (c *goZooKeeperCaller) acquire(_ context.Context, key string) error {
	c.lock = zk.NewLock(c.conn, "/go/"+strings.ReplaceAll(key, "/", "-"), zk.WorldACL(zk.PermAll))
	return c.lock.Lock()
}

func (c *goZooKeeperCaller) release() error { return c.lock.Unlock() }
