//go:build linux

package nemesis

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/redlock"
)

// Each function below starts the servers of set-ups, or returns how to. It sets the stores of a
// world.

// The configuration of servers that save each change before they answer, and of masters
// that accept no writes without a replica.
var (
	always      = []string{"appendonly yes", "appendfsync always"}
	minReplicas = []string{"min-replicas-to-write 1", "min-replicas-max-lag 2"}
)

func startRedis(conf ...string) func(*world) {
	return func(w *world) {
		w.Mixed = true
		w.use("redis", servers.Redis(w.t, conf...))
	}
}

// startSentinel has the faults of the master last until there is another one.
func startSentinel(conf ...string) func(*world) {
	return func(w *world) {
		s, r := servers.Sentinel(w.t, conf...)
		s.Own["store-restart"] = func(k servers.Strike) {
			k.Hold(func() {
				old := r.KillMaster()
				if k.Rand.IntN(3) > 0 { // otherwise it is back, and empty, before anybody has noticed
					r.WaitForFailover(old)
					k.Wait()
				}
				old.Restart()
				r.WaitForReplicas()
			})
		}
		s.Own["store-pause"] = func(k servers.Strike) {
			k.Hold(func() {
				old := r.HangMaster()
				r.WaitForFailover(old)
				k.Wait()
				old.Resume()
				r.WaitForReplicas()
			})
		}
		w.use("sentinel", s)
	}
}

func startCluster(w *world) {
	w.use("cluster", servers.Cluster(w.t, []string{"plain", "fair", "slots", "shared", "minhold", "delay"}))
}

// startRedlock starts five servers, and makes them the nodes of a Redlock with this longest TTL.
// The nodes are known by the addresses of their proxies.
func startRedlock(maxTTL time.Duration, conf ...string) func(*world) {
	return func(w *world) {
		s := servers.Redlock(w.t, 5, conf...)
		w.Mixed = maxTTL == longTTL
		if !w.Mixed { // a node stays away for as long as MaxTTL
			s.Minority = 2
		}
		w.use("redlock", s)
		w.Store.MaxTTL = maxTTL
		w.direct = w.Store
		if err := redlock.Admin(w.Store.Nodes(), w.Store.RedlockOptions()...).Init(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// startSQL returns how to start a database.
func startSQL(kind string, start func(testing.TB) *servers.Set) func(*world) {
	return func(w *world) {
		w.Mixed = kind != "pgsession"
		w.use(kind, start(w.t))
	}
}

// startPair returns how to start a database with a replica, which takes its place.
func startPair(kind string, start func(testing.TB, bool) *servers.Pair, synchronous bool) func(*world) {
	return func(w *world) {
		w.Mixed = true
		w.use(kind, servers.Replicated(w.t, start(w.t, synchronous)))
		w.direct = w.Store // the proxies lead to the primary
	}
}

// zkSilence is how long servers of the ensemble tolerate a silent leader.
const zkSilence = 3 * time.Second

func startZK(kind string) func(*world) {
	return func(w *world) {
		var c *zktest.Cluster
		m := newMesh(w.t, 3, func(i int) int { return c.Servers[i].PID() })
		c = zktest.EnsembleThrough(w.t, m.proxyAddr)
		leader := func() int { return slices.Index(c.Servers, c.Leader()) }
		w.useMembers(kind, servers.OfZooKeeper(w.t, c), m, leader, zkSilence)
	}
}

func startEtcd(w *world) {
	var c *etcdtest.ClusterSetup
	m := newMesh(w.t, 3, func(i int) int { return c.Members[i].PID() })
	c = etcdtest.ClusterThrough(w.t, 3, m.proxyAddr)
	w.useMembers("etcd", servers.OfEtcd(w.t, c), m, func() int { return slices.Index(c.Members, c.Leader()) }, time.Second)
}

// useMembers is use for members of a cluster. Faults hit any of them, and not only the leader. It
// adds the fault that a member is isolated from the others for a time, but not from clients.
func (w *world) useMembers(kind string, s *servers.Set, m *mesh, leader func() int, least time.Duration) {
	s.Hit = func(rng *rand.Rand) servers.Server { return s.All[rng.IntN(len(s.All))] }
	s.Own["partition"] = func(k servers.Strike) {
		member := k.Rand.IntN(m.members)
		if k.Rand.IntN(2) == 0 {
			member = leader()
		}
		k.Hold(func() {
			heal := m.cut(member)
			time.Sleep(least) // the members tolerate less
			k.Wait()
			heal()
		})
	}
	w.use(kind, s)
}
