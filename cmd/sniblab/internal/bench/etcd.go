package main

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// etcd compares the Mutex of etcd's own client with our lock on one etcd server, which waits for
// the disk. It measures the cost of our checks without contention, the gain of watching from the
// current revision instead of a past one, and the gain of local hand-overs.
func etcd() scenario {
	return scenario{
		name:  "etcd",
		about: "snib and the Mutex of etcd's own client on one etcd that waits for the disk.",
		start: startEtcd,
		peers: []peer{
			{name: snibRow, role: ours, open: openSnibEtcd, about: "snib with its default options"},
			{name: "etcd-mutex", open: openEtcdMutex, about: "concurrency.Mutex, with a session for each goroutine"},
		},
		variants: coordinatorVariants(
			[]aim{{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: 0.9}},
			[]aim{
				{column: handOverP50, relativeTo: "etcd-mutex", op: "≤", bound: 0.05},
				{column: handOverP95, relativeTo: "etcd-mutex", op: "≤", bound: 1.0 / 15},
				{column: cyclesPerSecond, relativeTo: "etcd-mutex", op: "≥", bound: 12},
			},
		),
	}
}

// etcdHeld holds 10,000 locks with our driver, and with the Mutex of etcd's own client on one
// session.
func etcdHeld() scenario {
	return heldInSession("etcd-held", "One process holds 10,000 locks in one session of etcd: what holding costs.", startEtcd, []peer{
		{name: snibRow, role: ours, open: openSnibEtcd, about: "snib with its default options"},
		{name: "etcd-mutex-session", open: openEtcdMutexSession, about: "concurrency.Mutex, with one session for all"},
	})
}

func startEtcd(t testing.TB) *store {
	t.Helper()
	s := etcdtest.Start(t)
	about := versionOf(t, "etcd", func(ctx context.Context) (string, error) {
		c, err := dialEtcd(s.Addr())
		if err != nil {
			return "", err
		}
		defer c.Close() //nolint:errcheck // it has answered
		status, err := c.Status(ctx, s.Addr())
		if err != nil {
			return "", err
		}
		return status.Version, nil
	})
	return &store{addrs: []string{s.Addr()}, about: about, servers: []*livetest.Process{s.Process}}
}

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
}

func openSnibEtcd(s setup) (*client, error) {
	conn, err := dialEtcd(s.addr())
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
	conn, err := dialEtcd(s.addr())
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
	conn, err := dialEtcd(s.addr())
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
