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

// zookeeper compares go-zookeeper's Lock with ours on one ZooKeeper server, which waits for the
// disk. It measures the cost of our checks, that the node is ours and still exists, and that the
// session is alive, and the gain of local hand-overs.
func zookeeper() scenario {
	return scenario{
		name:  "zookeeper",
		about: "snib and the lock of the client library on one ZooKeeper that waits for the disk.",
		start: startZooKeeper,
		peers: []peer{
			{name: snibRow, role: ours, open: openSnibZooKeeper, about: "snib with its default options"},
			{name: "go-zookeeper", open: openGoZooKeeper, about: "the Lock of go-zookeeper/zk"},
		},
		variants: coordinatorVariants(
			[]aim{{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: 1}},
			[]aim{{column: handOverP50, relativeTo: best, op: "≤", bound: 1}},
		),
	}
}

// zookeeperHeld holds 10,000 locks with our driver, and with go-zookeeper's Lock, which does not
// look whether its holds live.
func zookeeperHeld() scenario {
	return heldInSession("zookeeper-held", "One process holds 10,000 locks in one session of ZooKeeper: what holding costs.", startZooKeeper, []peer{
		{name: snibRow, role: ours, open: openSnibZooKeeper, about: "snib with its default options"},
		{name: "go-zookeeper", open: openGoZooKeeper, about: "the Lock of go-zookeeper/zk, which does not notice a loss"},
	})
}

// coordinatorVariants returns the variants of zookeeper and etcd.
func coordinatorVariants(cycle, handOver []aim) []variant {
	const window = 2 * time.Second
	return []variant{
		{name: "1 goroutine, own name", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: window, columns: cycleColumns(), aims: cycle},
		{name: "64 goroutines, own names", procs: 1, load: load{Goroutines: 64, Keys: 1}, window: window, columns: cycleColumns()},
		takeTurns(2, handOver),
		{name: "64 goroutines, one name", procs: 1, load: load{Goroutines: 64}, window: window, columns: contendedColumns(), aims: contendedAims()},
	}
}

func startZooKeeper(t testing.TB) *store {
	t.Helper()
	s := zktest.Single(t, zktest.Production)
	if err := warmUp(s.Addr()); err != nil {
		t.Fatalf("warm ZooKeeper up: %v", err)
	}
	about := versionOf(t, "ZooKeeper", func(context.Context) (string, error) { return s.Version() })
	return &store{addrs: []string{s.Addr()}, about: about, servers: []*livetest.Process{s.Process}}
}

// warmUp lets the server's virtual machine compile its code, which would otherwise
// slow the first peer down.
func warmUp(addr string) error {
	c, err := openGoZooKeeper(setup{addrs: []string{addr}})
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
	d, err := zklock.New(s.addrs)
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

// go-zookeeper: with a new Lock for each acquisition, because two goroutines can't share one.

func openGoZooKeeper(s setup) (*client, error) {
	conn, events, err := zk.Connect(s.addrs, 15*time.Second, zk.WithLogInfo(false))
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
