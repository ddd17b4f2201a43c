package redislock_test

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
	"github.com/sniblock/snib/redislock"
)

// ttl is the suite's TTL: long compared with a round trip, even on a busy machine.
const ttl = 300 * time.Millisecond

// floor is the minimum grace period in tests: short, but no shorter than most tests' TTLs.
const floor = 2 * time.Second

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
	used(t, node)
	h := detoured(at(node.Addr()), node.Addr())
	h.Restart = func(t *testing.T) {
		node.Kill()
		node.Restart()
		used(t, node)
	}
	drivertest.Run(t, h)
}

// TestConformanceAOF runs the suite with DurableAOF. A restart needs no grace period.
func TestConformanceAOF(t *testing.T) {
	livetest.Long(t)
	node := used(t, redistest.SingleAOF(t, "appendfsync always", redistest.Password(password)))
	h := detouredWith([]redislock.Option{redislock.DurableAOF()}, at(node.Addr()), node.Addr())
	h.Restart = func(*testing.T) {
		node.Kill()
		node.Restart()
	}
	drivertest.Run(t, h)
}

// TestConformanceSentinel has a master that Sentinels watch. The requests are those of one server.
func TestConformanceSentinel(t *testing.T) {
	livetest.Long(t)
	s := redistest.Sentinel(t, redistest.Password(password))
	used(t, s.Master())
	o := rueidis.ClientOption{
		InitAddress: s.Sentinels(), Password: password, Sentinel: rueidis.SentinelOption{MasterSet: s.MasterName()},
	}
	h := detoured(o, append(s.Addrs(), s.Sentinels()...)...)
	h.Kill = nil // as on one server
	drivertest.Run(t, h)
}

// TestConformanceCluster also has a namespace, which is a part of the names that choose the slots.
func TestConformanceCluster(t *testing.T) {
	const prefix = "app:"
	c := redistest.Cluster(t, redistest.Password(password))
	o := rueidis.ClientOption{InitAddress: c.Addrs(), Password: password}
	usedCluster(t, c, o, prefix)
	h := detouredWith([]redislock.Option{redislock.Prefix(prefix)}, o, c.Addrs()...)
	h.Kill = nil
	drivertest.Run(t, h)
}

// detoured returns a harness in which each driver has its own proxies to the servers at addrs.
func detoured(o rueidis.ClientOption, addrs ...string) drivertest.Harness {
	return detouredWith(nil, o, addrs...)
}

func detouredWith(opts []redislock.Option, o rueidis.ClientOption, addrs ...string) drivertest.Harness {
	h, paths := harness(o), livetest.Paths{}
	h.Sever, h.Stall = paths.Sever, paths.Stall
	h.Open = func(t *testing.T) driver.Driver {
		route, proxies := livetest.Detour(t, addrs...)
		o := o
		o.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", route(addr))
		}
		d := open(t, o, opts...)
		paths[d] = proxies
		return d
	}
	return h
}

// singleAndCluster starts a server and a Cluster, and returns how clients reach them.
func singleAndCluster(t *testing.T) map[string]rueidis.ClientOption {
	t.Helper()
	c := redistest.Cluster(t)
	inCluster := rueidis.ClientOption{InitAddress: c.Addrs()}
	usedCluster(t, c, inCluster, "")
	return map[string]rueidis.ClientOption{"Single": at(used(t, redistest.Single(t)).Addr()), "Cluster": inCluster}
}

// usedCluster is like used, for all slots of a Cluster, in a namespace.
func usedCluster(t testing.TB, c *redistest.ClusterSetup, o rueidis.ClientOption, prefix string) {
	t.Helper()
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var commands rueidis.Commands
	ids := make(map[*redistest.Node]string)
	for slot := range uint16(1 << 14) {
		master := c.FirstMasterOf(int(slot))
		if ids[master] == "" {
			ids[master] = master.RunID()
		}
		commands = append(commands, client.B().Hset().Key(prefix+"snib.m:{"+redislock.TagOf(slot)+"}").FieldValue().
			FieldValue("r", ids[master]).FieldValue("c", "0").FieldValue("x", "0").Build())
	}
	for _, r := range client.DoMulti(t.Context(), commands...) {
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// used makes a server look as if it had kept locks for a long time. Otherwise it would grant
// nothing until it is older than the TTL.
func used(t testing.TB, n *redistest.Node) *redistest.Node {
	t.Helper()
	return n.Used()
}

func harness(o rueidis.ClientOption) drivertest.Harness {
	return drivertest.Harness{
		Open:   func(t *testing.T) driver.Driver { return open(t, o) },
		TTL:    ttl,
		Secret: password,
		Kill:   func(t *testing.T, req driver.Request) func() { return hold(t, o, req) },
	}
}

func at(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{addr}, Password: password}
}

// as returns the options for one of the server's users, whose password is secret.
func as(n *redistest.Node, user string) rueidis.ClientOption {
	o := at(n.Addr())
	o.Username, o.Password = user, secret
	return o
}

func open(t testing.TB, o rueidis.ClientOption, opts ...redislock.Option) *redislock.Driver {
	t.Helper()
	var d *redislock.Driver
	livetest.Await(t, "driver", func() (err error) { // a busy machine may be too late
		d, err = redislock.Open(t.Context(), o,
			append([]redislock.Option{redislock.GraceFloor(floor), redislock.AllowSplitBrain()}, opts...)...)
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("Open = %v", err)
		}
		return err
	})
	t.Cleanup(func() { d.Close() })
	return d
}

// openOn returns a driver on a connection that wrap changes.
func openOn(t *testing.T, node *redistest.Node, wrap func(redislock.Conn) redislock.Conn,
	opts ...redislock.Option) *redislock.Driver {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{node.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	d, err := redislock.NewConn(t.Context(), wrap(redislock.ConnOf(client)), append(opts, redislock.GraceFloor(floor))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// hold acquires and renews through connections that kill cuts, leaving what a killed process
// leaves.
func hold(t *testing.T, o rueidis.ClientOption, req driver.Request) (kill func()) {
	t.Helper()
	p := livetest.NewProxy(t, o.InitAddress[0])
	o.InitAddress = []string{p.Addr()}
	return livetest.KeepThrough(t, []*livetest.Proxy{p}, open(t, o), req)
}
