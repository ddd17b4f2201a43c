package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest/etcdtest/etcdbin"
)

// etcd: an etcd server of its own, which waits for the disk, and the Mutex of etcd's own client beside ours. It asks what our
// checks cost where nobody is in the way, what it brings to watch from now on, and not from a revision that is past, and what to hand a lock
// over within the process.
func etcd() scenario {
	return scenario{
		name:   "etcd",
		server: startEtcd,
		variants: []variant{
			{name: "1 goroutine, same key", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 3 * time.Second,
				targets: []target{{column: "ops/s", over: best, is: "≥", bound: 0.9}}},
			{name: "2 processes, 1 ms held", procs: 2, load: load{Goroutines: 1, Hold: time.Millisecond}, window: 3 * time.Second,
				targets: []target{
					{column: "ops/s", over: best, is: "≥", bound: 12},
					{column: "cross gap p50 µs", over: "etcd-mutex", is: "≤", bound: 0.05},
					{column: "p95 gap µs", over: "etcd-mutex", is: "≤", bound: 1.0 / 15},
				}},
			{name: "64 goroutines, one key", procs: 1, load: load{Goroutines: 64}, window: 3 * time.Second,
				targets: []target{{column: "ops/s", over: best, is: "≥", bound: 100}, {column: "max/min", is: "≤", bound: 1.2}}},
		},
		columns: []column{
			perSecond(),
			waited("acq p50 µs", 50, time.Microsecond), waited("p95", 95, time.Microsecond), waited("p99", 99, time.Microsecond),
			gap("cross gap p50 µs", 50, true), gap("p95 gap µs", 95, false), crossShare(),
			leastServed(), mostServed(), fairness(), overlaps(), allocsPerOp(), clientCPUPerOp(),
		},
		ratio: true,
	}
}

// etcdScheme begins the address that a peer is given if it is an etcd server's.
const etcdScheme = "etcd://"

// startEtcd starts a server that is built from etcd's modules, and returns when it answers.
func startEtcd(ctx context.Context) (addr string, stop func(), err error) {
	program, err := etcdbin.Path("etcd")
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "snib-bench-")
	if err != nil {
		return "", nil, err
	}
	port, err1 := freePort()
	peer, err2 := freePort()
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	addr = net.JoinHostPort("127.0.0.1", port)
	own := "http://127.0.0.1:" + peer
	cmd := exec.Command(program, "--name", "bench", "--data-dir", dir, "--log-level", "error",
		"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
		"--listen-peer-urls", own, "--initial-advertise-peer-urls", own, "--initial-cluster", "bench="+own)
	cmd.SysProcAttr = attributes()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() {
		_ = cmd.Process.Kill() // what it would save goes with it
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	if err := etcdAnswers(ctx, addr); err != nil {
		stop()
		return "", nil, fmt.Errorf("the etcd server did not start: %w\n%s", cmp.Or(ctx.Err(), err), out.Bytes())
	}
	return etcdScheme + addr, stop, nil
}

// etcdAnswers waits until a server answers.
func etcdAnswers(ctx context.Context, addr string) error {
	client, err := dialEtcd(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for err = errors.New("not asked"); err != nil && ctx.Err() == nil; {
		_, err = client.Get(ctx, "is anybody there?")
	}
	return errors.Join(err, client.Close())
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
	c, err := snibClient(s, etcdlock.New(conn))
	if err != nil {
		return nil, err
	}
	closeLocker := c.close
	c.close = func() { closeLocker(); _ = conn.Close() }
	return c, nil
}

// etcd-mutex: a session for each goroutine, since two of one session don't exclude each other, and a Mutex for each
// acquisition.

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
