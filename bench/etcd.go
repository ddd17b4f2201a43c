package main

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// etcd compares the Mutex of etcd's own client with our lock on its own etcd server, which
// waits for the disk. It measures the cost of our checks without contention, the gain of
// watching from the current revision instead of a past one, and the gain of local hand-overs.
func etcd() scenario {
	return scenario{
		name:   "etcd",
		server: startEtcd,
		variants: []variant{
			{name: "1 goroutine, same key", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 3 * time.Second,
				targets: []target{{column: "ops/s", relativeTo: best, op: "≥", bound: 0.9}}},
			{name: "2 processes, 1 ms held", procs: 2, load: load{Goroutines: 1, Hold: time.Millisecond}, window: 3 * time.Second,
				targets: []target{
					{column: "ops/s", relativeTo: best, op: "≥", bound: 12},
					{column: "cross gap p50 µs", relativeTo: "etcd-mutex", op: "≤", bound: 0.05},
					{column: "p95 gap µs", relativeTo: "etcd-mutex", op: "≤", bound: 1.0 / 15},
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

// etcdHeld holds 10,000 locks with our driver, and with the Mutex of etcd's own client on one
// session.
func etcdHeld() scenario {
	s := heldInSession("etcd-held", startEtcd)
	s.variants[0].targets = append(s.variants[0].targets, target{column: "CPU-s/min", relativeTo: "etcd-mutex-session", op: "≤", bound: 1.2})
	return s
}

// etcdScheme is the prefix of the address of an etcd server in a setup.
const etcdScheme = "etcd://"

func startEtcd(t testing.TB) (addr string, p *livetest.Process) {
	t.Helper()
	s := etcdtest.Start(t)
	return etcdScheme + s.Addr(), s.Process
}

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{strings.TrimPrefix(addr, etcdScheme)}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
}

func openSnibEtcd(s setup) (*client, error) {
	conn, err := dialEtcd(s.addr)
	if err != nil {
		return nil, err
	}
	d, err := etcdlock.New(conn)
	if err != nil {
		return nil, err
	}
	c, err := snibClient(s, d)
	if err != nil {
		return nil, err
	}
	closeLocker := c.close
	c.close = func() { closeLocker(); _ = conn.Close() }
	return c, nil
}

// etcd-mutex: with a session for each goroutine, because two Mutexes of one session don't
// exclude each other, and a Mutex for each acquisition.

func openEtcdMutex(s setup) (*client, error) {
	conn, err := dialEtcd(s.addr)
	if err != nil {
		return nil, err
	}
	return &client{
		caller: func() caller { return &etcdMutexCaller{conn: conn} },
		close:  func() { _ = conn.Close() },
	}, nil
}

// etcd-mutex-session: with one session for all Mutexes, whose keys differ, as long as ours.

func openEtcdMutexSession(s setup) (*client, error) {
	conn, err := dialEtcd(s.addr)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(conn, concurrency.WithTTL(15))
	if err != nil {
		return nil, err
	}
	return &client{
		caller: func() caller { return &etcdMutexCaller{conn: conn, session: session} },
		close:  func() { _ = session.Close(); _ = conn.Close() },
	}, nil
}

type etcdMutexCaller struct {
	conn    *clientv3.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (c *etcdMutexCaller) acquire(ctx context.Context, key string) (err error) {
	if c.session == nil {
		if c.session, err = concurrency.NewSession(c.conn); err != nil {
			return err
		}
	}
	c.mutex = concurrency.NewMutex(c.session, key)
	return c.mutex.Lock(ctx)
}

func (c *etcdMutexCaller) release() error { return c.mutex.Unlock(context.Background()) }
