//go:build linux

package nemesis

import (
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
)

// The configuration of servers that save each change before they answer, and of masters
// that accept no writes without a replica.
var (
	always      = []string{"appendonly yes", "appendfsync always"}
	minReplicas = []string{"min-replicas-to-write 1", "min-replicas-max-lag 2"}
)

// addFlush adds the fault FLUSHALL on the server that one returns.
func (w *world) addFlush(one func() *redistest.Node) {
	w.addFault("flush", func(time.Duration) {
		// A master refuses writes while it knows of no replica.
		w.logFault("flush", "", func() {
			livetest.Await(w.t, "FLUSHALL", func() error { _, err := one().Do("FLUSHALL"); return err })
		})
	})
}

func startRedis(conf ...string) func(*world) {
	return func(w *world) {
		t, s := newShim(w.t)
		node := redistest.Single(t, conf...)
		w.addProxies("redis", node.Addr())
		w.Mixed, w.Abandon = true, true
		w.addWorkerFaults()
		w.addServerFaults(node)
		if len(conf) > 0 {
			w.addFsyncFault(s, node)
		}
		w.addFlush(func() *redistest.Node { return node })
		w.addFault("kill-session", func(time.Duration) {
			w.logFault("kill-session", "", func() { node.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") })
		})
	}
}

func startSentinel(conf ...string) func(*world) {
	return func(w *world) {
		s := redistest.Sentinel(w.t, conf...)
		w.direct = Store{Kind: "sentinel", Addrs: s.Sentinels()}
		w.Store = w.direct
		w.Abandon = true
		w.addWorkerFaults()
		w.addFault("kill-server", func(duration time.Duration) {
			w.logFault("kill-server", "", func() {
				old := s.KillMaster()
				if w.r.IntN(3) > 0 { // otherwise it is back, and empty, before anybody has noticed
					s.WaitForFailover(old)
					w.waitDuringFault(duration)
				}
				old.Restart()
				s.WaitForReplicas()
			})
		})
		w.addFault("stop-server", func(duration time.Duration) {
			w.logFault("stop-server", "", func() {
				old := s.HangMaster()
				s.WaitForFailover(old)
				w.waitDuringFault(duration)
				old.Resume()
				s.WaitForReplicas()
			})
		})
		w.addFault("failover", func(time.Duration) {
			w.logFault("failover", "", func() { s.Failover() })
		})
		w.addFlush(s.Master)
	}
}

func startCluster(w *world) {
	c := redistest.Cluster(w.t)
	w.direct = Store{Kind: "cluster", Addrs: c.Addrs()}
	w.Store = w.direct
	w.Abandon = true
	slot := func() int {
		names := []string{"plain", "fair", "slots", "shared", "minhold", "delay"}
		return c.SlotOf(names[w.r.IntN(len(names))])
	}
	w.addWorkerFaults()
	w.addFault("kill-server", func(duration time.Duration) {
		w.logFault("kill-server", "", func() {
			s := slot()
			old := c.KillMasterOf(s)
			c.WaitForFailover(s, old)
			w.waitDuringFault(duration)
			old.Restart()
			c.WaitUntilWell()
		})
	})
	w.addFault("failover", func(time.Duration) {
		w.logFault("failover", "", func() {
			c.Failover(slot())
			c.WaitUntilWell()
		})
	})
	w.addFault("move-slot", func(duration time.Duration) {
		w.logFault("move-slot", "", func() {
			s := slot()
			move := c.BeginMove(s, c.MasterOtherThan(s))
			w.waitDuringFault(duration)
			move.Keys()
			w.waitDuringFault(duration / 2)
			move.Finish()
			c.WaitUntilWell()
		})
	})
	w.addFlush(func() *redistest.Node { return c.MasterOf(slot()) })
}

// redlockNodes starts five servers, the first of them with the test first, and initialises them
// as the nodes of a Redlock. The nodes are known by the addresses of their proxies.
func redlockNodes(w *world, first testing.TB, conf ...string) (nodes []*redistest.Node) {
	w.t.Helper()
	nodes = []*redistest.Node{redistest.Single(first, conf...)}
	for range 4 {
		nodes = append(nodes, redistest.Single(w.t, conf...))
	}
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr())
	}
	w.addProxies("redlock", addrs...)
	w.direct = w.Store
	if err := redlock.Admin(w.Store.nodes(), redlockOptions()...).Init(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return nodes
}

func startRedlock(conf ...string) func(*world) {
	return func(w *world) {
		nodes := redlockNodes(w, w.t, conf...)
		w.Mixed, w.Abandon = true, true
		w.addWorkerFaults()
		var servers []server
		for _, n := range nodes {
			servers = append(servers, n)
		}
		w.addServerFaults(servers...)
		w.addFlush(func() *redistest.Node { return nodes[w.r.IntN(len(nodes))] })
	}
}

func startRedisClock(way direction) func(*world) {
	return func(w *world) {
		t, c := newShim(w.t)
		node := redistest.Single(t)
		w.addProxies("redis", node.Addr())
		w.Mixed = true
		w.addClockStep(c, way)
		if way == back {
			w.addServerFaults(node)
		}
	}
}

func startRedlockClock(way direction) func(*world) {
	return func(w *world) {
		t, c := newShim(w.t)
		redlockNodes(w, t)
		w.Mixed = true
		w.addClockStep(c, way)
	}
}
