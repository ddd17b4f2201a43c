package goredis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/goredis"
)

// ttl is the suite's TTL: long compared with a round trip, even on a busy machine.
const ttl = 300 * time.Millisecond

const password = "correct-horse"

// TestConformance runs the suite on drivers that each have their own path to the server, which
// can be cut.
func TestConformance(t *testing.T) {
	testConformance(t, redistest.Single(t, redistest.Password(password)))
}

// TestConformanceServers runs the suite on other versions of Redis, and on Valkey.
func TestConformanceServers(t *testing.T) {
	livetest.Long(t)
	for _, s := range redistest.Servers() {
		t.Run(s.String(), func(t *testing.T) { testConformance(t, s.Single(t, redistest.Password(password))) })
	}
}

func testConformance(t *testing.T, node *redistest.Node) {
	t.Helper()
	node.Used()
	h := detoured(func(t *testing.T, through dialer) *redislock.Driver {
		return open(t, closed(t, redis.NewClient(&redis.Options{Addr: node.Addr(), Password: password, Dialer: through})))
	}, node.Addr())
	h.Kill = func(t *testing.T, req driver.Request) func() { return hold(t, node.Addr(), req) }
	h.Restart = func(t *testing.T) {
		node.Kill()
		node.Restart()
		node.Used()
	}
	drivertest.Run(t, h)
}

// TestConformanceSentinel also tests clients whose settings are not the defaults.
func TestConformanceSentinel(t *testing.T) {
	livetest.Long(t)
	s := redistest.Sentinel(t, redistest.Password(password), redistest.SentinelPassword(password))
	s.Master().Used()
	drivertest.Run(t, detoured(func(t *testing.T, through dialer) *redislock.Driver {
		return open(t, dialSentinel(t, s, through))
	}, append(s.Addrs(), s.Sentinels()...)...))
}

func TestConformanceCluster(t *testing.T) {
	c := redistest.Cluster(t, redistest.Password(password))
	drivertest.Run(t, detoured(func(t *testing.T, through dialer) *redislock.Driver {
		return openInCluster(t, c, through)
	}, c.Addrs()...))
}

// A dialer makes the connections of a client. Nil stands for the client's own.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// detoured returns a harness in which each driver has its own proxies to the servers at addrs.
func detoured(open func(t *testing.T, through dialer) *redislock.Driver, addrs ...string) drivertest.Harness {
	paths := livetest.Paths{}
	h := drivertest.Harness{TTL: ttl, Secret: password, Sever: paths.Sever, Stall: paths.Stall}
	h.Open = func(t *testing.T) driver.Driver {
		route, proxies := livetest.Detour(t, addrs...)
		d := open(t, func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, route(addr))
		})
		paths[d] = proxies
		return d
	}
	return h
}

// TestSentinelNeedsReplicas checks that a master behind Sentinel that writes without a replica
// is rejected.
func TestSentinelNeedsReplicas(t *testing.T) {
	s := redistest.Sentinel(t, redistest.Password(password), redistest.SentinelPassword(password))
	if d, err := goredis.New(t.Context(), dialSentinel(t, s, nil)); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "min-replicas-to-write") {
		t.Errorf("New = %v, %v, want ErrInvalid for min-replicas-to-write", d, err)
	}
	d, err := goredis.New(t.Context(), dial(t, s.Master().Addr()))
	if err != nil {
		t.Fatalf("New on the master itself = %v", err)
	}
	d.Close()
}

func dial(t testing.TB, addr string) *redis.Client {
	return closed(t, redis.NewClient(&redis.Options{Addr: addr, Password: password}))
}

func dialSentinel(t testing.TB, s *redistest.SentinelSetup, through dialer) *redis.Client {
	return closed(t, redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.MasterName(), SentinelAddrs: s.Sentinels(), SentinelPassword: password, Password: password,
		Protocol: 2, ContextTimeoutEnabled: true, PoolSize: 2, PipelinePoolSize: -1, MaxRetries: -1, Dialer: through,
	}))
}

func dialCluster(t testing.TB, c *redistest.ClusterSetup, through dialer) *redis.ClusterClient {
	return closed(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Password: password, Dialer: through}))
}

// openInCluster opens a driver with failover-grace off. Otherwise each slot of a new Cluster would
// grant nothing until it is older than the TTL.
func openInCluster(t testing.TB, c *redistest.ClusterSetup, through dialer) *redislock.Driver {
	t.Helper()
	return open(t, dialCluster(t, c, through), redislock.FailoverGrace(false))
}

// closed closes a client at the end of the test.
func closed[C redis.UniversalClient](t testing.TB, client C) C {
	t.Cleanup(func() { client.Close() })
	return client
}

func open(t testing.TB, client redis.UniversalClient, opts ...redislock.Option) *redislock.Driver {
	t.Helper()
	var d *redislock.Driver
	livetest.Await(t, "driver", func() (err error) { // a busy machine may be too late
		d, err = goredis.New(t.Context(), client,
			append([]redislock.Option{redislock.GraceFloor(2 * time.Second), redislock.AllowSplitBrain()}, opts...)...)
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("New = %v", err)
		}
		return err
	})
	t.Cleanup(func() { d.Close() })
	return d
}

// hold acquires and renews through connections that kill cuts, leaving what a killed process
// leaves.
func hold(t *testing.T, addr string, req driver.Request) (kill func()) {
	t.Helper()
	p := livetest.NewProxy(t, addr)
	return livetest.KeepThrough(t, []*livetest.Proxy{p}, open(t, dial(t, p.Addr())), req)
}
