package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
)

// ttl is the suite's TTL. It is long compared with a few round trips, even on a busy machine.
const ttl = 300 * time.Millisecond

const password = "correct-horse"

// TestConformance runs the suite with a set of proxies for each driver, which can be cut. The
// servers keep nothing, so restarting all of them loses all memory.
func TestConformance(t *testing.T) { testConformance(t) }

// TestConformanceServers runs the suite on other versions of Redis, and on Valkey.
func TestConformanceServers(t *testing.T) {
	t.Parallel()
	livetest.Long(t)
	for _, s := range redistest.Servers() {
		t.Run(s.String(), func(t *testing.T) { testConformance(t, s.Conf(t)) })
	}
}

func testConformance(t *testing.T, conf ...string) {
	t.Helper()
	c := start(t, 5, conf...)
	c.opts = append(c.opts, redlock.MaxTTL(4*time.Second))
	c.init(t)
	h, paths := c.harness(), livetest.Paths{}
	h.Sever, h.Stall = paths.Sever, paths.Stall
	h.Open = func(t *testing.T) driver.Driver {
		servers, proxies := c.detour(t)
		d := open(t, servers, c.opts...)
		paths[d] = proxies
		return d
	}
	h.Restart = func(*testing.T) {
		for _, n := range c.nodes {
			n.Kill()
			n.Restart()
		}
	}
	drivertest.Run(t, h)
}

// TestConformanceHung runs the suite while two of five nodes hang.
func TestConformanceHung(t *testing.T) {
	livetest.Long(t)
	c := start(t, 5)
	// The timeout is short because each driver has to detect the hung nodes.
	c.opts = append(c.opts, redlock.NodeTimeout(150*time.Millisecond))
	c.init(t)
	c.nodes[1].Hang()
	c.nodes[3].Hang()
	drivertest.Run(t, c.harness())
}

// TestConformanceKilled runs the suite with two of five nodes killed.
func TestConformanceKilled(t *testing.T) {
	livetest.Long(t)
	c := start(t, 5)
	c.init(t)
	c.nodes[0].Kill()
	c.nodes[4].Kill()
	drivertest.Run(t, c.harness())
}

// A cluster is N servers, and how drivers connect to them.
type cluster struct {
	nodes   []*redistest.Node
	servers []rueidis.ClientOption
	opts    []redlock.Option
}

// start starts servers that belong to no cluster yet.
func start(t testing.TB, n int, conf ...string) *cluster {
	t.Helper()
	c := &cluster{}
	for range n {
		node := redistest.Single(t, append([]string{redistest.Password(password)}, conf...)...)
		c.nodes = append(c.nodes, node)
		c.servers = append(c.servers, at(node))
	}
	return c
}

func at(n *redistest.Node) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{n.Addr()}, Password: password}
}

// init makes the servers a cluster, which takes part at once.
func (c *cluster) init(t testing.TB) {
	t.Helper()
	livetest.Await(t, "cluster", func() error {
		// A busy machine may not answer in time.
		err := redlock.Admin(c.servers, c.opts...).Init(t.Context())
		if err != nil {
			for _, n := range c.nodes { // some nodes may already belong to the cluster
				n.Must("FLUSHALL")
			}
		}
		return err
	})
}

func (c *cluster) harness() drivertest.Harness {
	return drivertest.Harness{
		Open:   func(t *testing.T) driver.Driver { return open(t, c.servers, c.opts...) },
		TTL:    ttl,
		Secret: password,
		Kill:   c.holdUntilKilled,
	}
}

func open(t testing.TB, servers []rueidis.ClientOption, opts ...redlock.Option) *redlock.Driver {
	t.Helper()
	var d *redlock.Driver
	livetest.Await(t, "driver", func() (err error) {
		// A busy machine may not answer in time.
		d, err = redlock.Open(t.Context(), servers, opts...)
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("Open = %v", err)
		}
		return err
	})
	t.Cleanup(func() { d.Close() })
	return d
}

// detour returns the servers with connections through proxies. The addresses, which name the
// nodes, stay the same.
func (c *cluster) detour(t testing.TB) (servers []rueidis.ClientOption, proxies []*livetest.Proxy) {
	t.Helper()
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	route, proxies := livetest.Detour(t, addrs...)
	for _, o := range c.servers {
		o.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", route(addr))
		}
		servers = append(servers, o)
	}
	return servers, proxies
}

// holdUntilKilled acquires and renews through proxies that kill cuts, which leaves what a
// killed process leaves.
func (c *cluster) holdUntilKilled(t *testing.T, req driver.Request) (kill func()) {
	t.Helper()
	servers, proxies := c.detour(t)
	return livetest.KeepThrough(t, proxies, open(t, servers, c.opts...), req)
}
