//go:build linux

package nemesis

import (
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock/redlock"
)

// What servers are configured with that save each change before they answer, and masters that answer nobody without a replica.
var (
	always      = []string{"appendonly yes", "appendfsync always"}
	minReplicas = []string{"min-replicas-to-write 1", "min-replicas-max-lag 2"}
)

// flush is FLUSHALL on a server that one chooses.
func (w *world) flush(one func() *redistest.Node) {
	w.add("flush", func(time.Duration) {
		w.during("flush", "", func() { one().Must("FLUSHALL") })
	})
}

func startRedis(conf ...string) func(*world) {
	return func(w *world) {
		t, s := newShim(w.t)
		node := redistest.Single(t, conf...)
		w.direct = Store{Kind: "redis", Addrs: []string{node.Addr()}}
		w.Store = Store{Kind: "redis", Addrs: w.proxy(node.Addr())}
		w.Mixed, w.Abandon = true, true
		w.workerFaults()
		w.serverFaults(node)
		if len(conf) > 0 {
			w.fsync(s, node)
		}
		w.flush(func() *redistest.Node { return node })
		w.add("kill-session", func(time.Duration) {
			w.during("kill-session", "", func() { node.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") })
		})
	}
}

func startSentinel(conf ...string) func(*world) {
	return func(w *world) {
		s := redistest.Sentinel(w.t, conf...)
		w.direct = Store{Kind: "sentinel", Addrs: s.Sentinels()}
		w.Store = w.direct
		w.Abandon = true
		w.workerFaults()
		w.add("kill-server", func(last time.Duration) {
			w.during("kill-server", "", func() {
				old := s.KillMaster()
				if w.r.IntN(3) > 0 { // else it is back before anybody has noticed, and empty
					s.WaitForFailover(old)
					w.meanwhile(last)
				}
				old.Restart()
				s.WaitForReplicas()
			})
		})
		w.add("stop-server", func(last time.Duration) {
			w.during("stop-server", "", func() {
				old := s.HangMaster()
				s.WaitForFailover(old)
				w.meanwhile(last)
				old.Resume()
				s.WaitForReplicas()
			})
		})
		w.add("failover", func(time.Duration) {
			w.during("failover", "", func() { s.Failover() })
		})
		w.flush(s.Master)
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
	w.workerFaults()
	w.add("kill-server", func(last time.Duration) {
		w.during("kill-server", "", func() {
			s := slot()
			old := c.KillMasterOf(s)
			c.WaitForFailover(s, old)
			w.meanwhile(last)
			old.Restart()
			c.WaitUntilWell()
		})
	})
	w.add("failover", func(time.Duration) {
		w.during("failover", "", func() {
			c.Failover(slot())
			c.WaitUntilWell()
		})
	})
	w.add("move-slot", func(last time.Duration) {
		w.during("move-slot", "", func() {
			s := slot()
			move := c.BeginMove(s, c.MasterOtherThan(s))
			w.meanwhile(last)
			move.Keys()
			w.meanwhile(last / 2)
			move.Finish()
			c.WaitUntilWell()
		})
	})
	w.flush(func() *redistest.Node { return c.MasterOf(slot()) })
}

// redlockNodes starts five servers, the first of them for another test, and makes them a cluster. They know themselves by the
// addresses of their proxies.
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
	w.Store = Store{Kind: "redlock", Addrs: w.proxy(addrs...)}
	w.direct = w.Store
	if err := redlock.Init(w.t.Context(), w.Store.nodes(), redlockOptions()...); err != nil {
		w.t.Fatal(err)
	}
	return nodes
}

func startRedlock(conf ...string) func(*world) {
	return func(w *world) {
		nodes := redlockNodes(w, w.t, conf...)
		w.Mixed, w.Abandon = true, true
		w.workerFaults()
		var servers []server
		for _, n := range nodes {
			servers = append(servers, n)
		}
		w.serverFaults(servers...)
		w.flush(func() *redistest.Node { return nodes[w.r.IntN(len(nodes))] })
	}
}

func startRedisClock(way direction) func(*world) {
	return func(w *world) {
		t, c := newShim(w.t)
		node := redistest.Single(t)
		w.direct = Store{Kind: "redis", Addrs: []string{node.Addr()}}
		w.Store = Store{Kind: "redis", Addrs: w.proxy(node.Addr())}
		w.Mixed = true
		w.step(c, way)
		if way == back {
			w.serverFaults(node)
		}
	}
}

func startRedlockClock(way direction) func(*world) {
	return func(w *world) {
		t, c := newShim(w.t)
		redlockNodes(w, t)
		w.Mixed = true
		w.step(c, way)
	}
}
