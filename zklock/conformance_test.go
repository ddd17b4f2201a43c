package zklock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

func TestConformance(t *testing.T) {
	server := zktest.Single(t)
	h := harness([]string{server.Addr()})
	h.Restart = func(*testing.T) {
		server.Kill()
		server.Restart()
	}
	drivertest.Run(t, h)
}

// TestConformanceKeepSuspended runs with holds that may outlast a connection.
func TestConformanceKeepSuspended(t *testing.T) {
	livetest.Long(t)
	drivertest.Run(t, harness([]string{zktest.Single(t).Addr()}, zklock.KeepSuspended()))
}

// TestConformanceReadWrite runs with the names of Curator's InterProcessReadWriteLock.
func TestConformanceReadWrite(t *testing.T) {
	livetest.Long(t)
	drivertest.Run(t, harness([]string{zktest.Single(t).Addr()}, zklock.CuratorReadWrite()))
}

func TestConformanceEnsemble(t *testing.T) {
	tests := []struct {
		name string
		harm func(*zktest.Cluster)
	}{
		{"AllUp", func(*zktest.Cluster) {}},
		{"FollowerKilled", func(c *zktest.Cluster) { c.Followers()[0].Kill() }},
		{"LeaderKilled", func(c *zktest.Cluster) { c.Leader().Kill(); c.Leader() }},
		{"FollowerHung", func(c *zktest.Cluster) { c.Followers()[0].Hang() }},
		{"LeaderHung", func(c *zktest.Cluster) { c.Leader().Hang(); c.Leader() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "LeaderKilled" {
				livetest.Long(t)
			}
			ensemble := zktest.Ensemble(t)
			tt.harm(ensemble)
			drivertest.Run(t, harness(ensemble.Addrs()))
		})
	}
}

// harness returns a harness for drivers on servers. Each driver reaches them through its own
// proxies.
func harness(servers []string, opts ...zklock.Option) drivertest.Harness {
	paths := livetest.Paths{}
	return drivertest.Harness{
		Open: func(t *testing.T) driver.Driver {
			var proxies []*livetest.Proxy
			var addrs []string
			for _, server := range servers {
				p := livetest.NewProxy(t, server)
				proxies, addrs = append(proxies, p), append(addrs, p.Addr())
			}
			d := openDriver(t, addrs, options(opts...)...)
			paths[d] = proxies
			return d
		},
		// The ensemble keeps a session for 7/12 of its timeout longer than we rely on it, and a
		// tick.
		Slack:  timeout,
		Secret: secret,
		Sever:  paths.Sever,
		Stall:  paths.Stall,
		Kill: func(t *testing.T, req driver.Request) func() {
			c := startHolder(t, servers, req)
			c.Expect("held")
			return c.Kill
		},
		Empty: map[string]func(*testing.T){"deleteall": func(t *testing.T) { deleteAll(t, servers[0]) }},
	}
}

// deleteAll deletes all locks, each with all its nodes at once.
func deleteAll(t *testing.T, server string) {
	tr := newTree(t, server)
	for _, name := range tr.children("/snib") {
		folder := "/snib/" + name
		livetest.Await(t, "removal of all nodes at once", func() error { // a waiter may queue meanwhile
			var all []any
			for _, node := range tr.children(folder) {
				all = append(all, &zk.DeleteRequest{Path: folder + "/" + node, Version: -1})
			}
			_, err := tr.Multi(append(all, &zk.DeleteRequest{Path: folder, Version: -1})...)
			if errors.Is(err, zk.ErrNoNode) && len(all) == 0 {
				return nil // it was empty, and somebody else has deleted it
			}
			return err
		})
	}
}

const (
	// timeout is the session timeout of the suite, and of tests that bear the end of any session.
	timeout = 2 * time.Second

	// testbedTimeout is that of one session that a test ends, and of the next one, which a busy
	// machine must not end.
	testbedTimeout = 6 * time.Second

	// longTimeout is the session timeout of other tests. It is longer than a busy machine keeps a
	// process waiting.
	longTimeout = time.Minute
)

// secret is the password of the tests' user.
const secret = "zktest-secret"

// options returns the options that all drivers of the tests have, and more.
func options(more ...zklock.Option) []zklock.Option {
	return append([]zklock.Option{zklock.Timeout(timeout), zklock.Digest("snib", secret)}, more...)
}
