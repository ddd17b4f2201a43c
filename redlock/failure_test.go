package redlock_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/outagetest"
	"github.com/sniblock/snib/redlock"
)

// TestFailures proves the cells of Redlock in docs/failures.md. All nodes but one fail.
func TestFailures(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "redis")
	user := "user program on >" + password + " ~* &* +@all"
	c := start(livetest.WithEnv(t, shim.Env()...), 3, user, "appendonly yes")
	c.init(t)
	for i := range c.servers {
		c.servers[i].Username = "program"
	}
	must := func(command ...any) {
		for _, n := range c.nodes[1:] {
			n.Must(command...)
		}
	}
	setPassword := func(p string) {
		must("ACL", "SETUSER", "program", "resetpass", ">"+p)
		must("CLIENT", "KILL", "USER", "program")
	}
	openOne := func(t *testing.T) driver.Driver { return open(t, c.servers, c.opts...) }
	store := outagetest.Store{Open: openOne, Secret: password}
	// After a restart, the nodes would stay away for MaxTTL.
	reset := func() {
		for _, n := range c.nodes {
			n.Must("FLUSHALL")
		}
		c.init(t)
	}
	restart := outagetest.Restarted(c.nodes[1], c.nodes[2])
	killed := restart.Begin
	restart.Begin = func(t *testing.T) func() {
		end := killed(t)
		return func() { end(); reset() }
	}
	store.Errors(t,
		outagetest.Failure{Name: "NoWrites", Denied: true, Says: "script", Begin: func(*testing.T) func() { // each version has its own words
			must("ACL", "SETUSER", "program", "-set")
			return func() { must("ACL", "SETUSER", "program", "+set") }
		}},
		outagetest.Failure{Name: "Grace", Says: "they take part within ", Begin: func(*testing.T) func() {
			for _, n := range c.nodes[1:] {
				n.Kill()
				n.Restart()
			}
			return reset
		}},
		restart,
	)
	store.Failures(t,
		outagetest.Failure{Name: "Password", Denied: true, Says: "WRONGPASS", Begin: func(*testing.T) func() {
			setPassword("another")
			return func() { setPassword(password) }
		}},
		outagetest.Hung("it does not answer", c.nodes[1], c.nodes[2]),
		outagetest.Failure{Name: "FullPool", Begin: func(*testing.T) func() {
			first, second := c.nodes[1].Crowd(), c.nodes[2].Crowd()
			return func() {
				first()
				second()
			}
		}},
		outagetest.Failure{Name: "FullMemory", Renews: true, Begin: func(*testing.T) func() {
			must("CONFIG", "SET", "maxmemory", 1)
			return func() { must("CONFIG", "SET", "maxmemory", 0) }
		}},
		outagetest.Failure{Name: "FullDisk", Begin: func(*testing.T) func() {
			shim.FillDisk(true)
			for _, n := range c.nodes {
				n.AwaitFullDisk("other")
			}
			return func() { shim.FillDisk(false) }
		}},
		outagetest.Failure{Name: "ReadOnly", Begin: func(*testing.T) func() {
			must("REPLICAOF", "127.0.0.1", 1)
			return func() { must("REPLICAOF", "NO", "ONE") }
		}},
	)
}

// TestEmptied has all nodes but one lose their keys. They grant nothing for MaxTTL, as they may
// have forgotten a hold.
func TestEmptied(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	c := start(t, 3)
	c.opts = []redlock.Option{redlock.MaxTTL(ttl)}
	c.init(t)
	openOne := func(t *testing.T) driver.Driver { return open(t, c.servers, c.opts...) }
	outagetest.Store{Open: openOne}.Failures(t, outagetest.Failure{Name: "Majority", Lost: true, TTL: ttl, Begin: func(*testing.T) func() {
		for _, n := range c.nodes[1:] {
			n.Must("FLUSHALL")
		}
		return func() {}
	}})
}
