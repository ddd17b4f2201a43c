package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// zookeeper compares go-zookeeper's Lock with ours on its own ZooKeeper server, which
// waits for the disk. It measures the cost of our checks, that the node is ours and still
// exists, and that the session is alive, and the gain of local hand-overs.
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
			{name: "64 goroutines, one key", procs: 1, load: load{Goroutines: 64}, window: 3 * time.Second,
				targets: []target{{column: "ops/s", relativeTo: best, op: "≥", bound: 100}, {column: "max/min", op: "≤", bound: 1.2}}},
		},
		columns: []column{
			perSecond(),
			waited("acq p50 µs", 50, time.Microsecond), waited("p95", 95, time.Microsecond), waited("p99", 99, time.Microsecond),
			gap("cross gap p50 µs", 50, true), gap("p95 gap µs", 95, false), crossShare(),
			leastServed(), mostServed(), fairness(), overlaps(), allocsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
		},
		ratio: true,
	}
}

// zookeeperHeld holds 10,000 locks with our driver, and with go-zookeeper's Lock, which does not
// look whether its holds live.
func zookeeperHeld() scenario {
	s := heldInSession("zookeeper-held", startZooKeeper)
	s.variants[0].targets = append(s.variants[0].targets, target{column: "CPU-s/min", relativeTo: "go-zookeeper", op: "≤", bound: 1.2})
	return s
}

// zkScheme is the prefix of the address of a ZooKeeper server in a setup.
const zkScheme = "zk://"

func startZooKeeper(t testing.TB) (addr string, p *livetest.Process) {
	t.Helper()
	s := zktest.Single(t, zktest.Production)
	if err := warmUp(s.Addr()); err != nil {
		t.Fatalf("warm ZooKeeper up: %v", err)
	}
	return zkScheme + s.Addr(), s.Process
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
