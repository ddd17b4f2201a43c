//go:build linux

package nemesis

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pair"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/redlock"
)

// Each function below starts the servers of set-ups, or returns how to. It sets the stores of a
// world, and adds all faults that the servers can have. A set-up has those that its rows name.

// The configuration of servers that save each change before they answer, and of masters
// that accept no writes without a replica.
var (
	always      = []string{"appendonly yes", "appendfsync always"}
	minReplicas = []string{"min-replicas-to-write 1", "min-replicas-max-lag 2"}
)

func startRedis(conf ...string) func(*world) {
	return func(w *world) {
		t, shim := newShim(w.t)
		node := redistest.Single(t, conf...)
		w.Mixed = true
		w.addProxies("redis", node.Addr())
		w.addServerFaults(shim, node)
		w.addFlush(func() *redistest.Node { return node })
		w.addFault("kill-session", func(time.Duration) { node.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") })
	}
}

func startSentinel(conf ...string) func(*world) {
	return func(w *world) {
		s := redistest.Sentinel(w.t, conf...)
		w.setStore("sentinel", s.Sentinels()...)
		w.addFault("store-restart", func(duration time.Duration) {
			old := s.KillMaster()
			if w.r.IntN(3) > 0 { // otherwise it is back, and empty, before anybody has noticed
				s.WaitForFailover(old)
				w.waitDuringFault(duration)
			}
			old.Restart()
			s.WaitForReplicas()
		})
		w.addFault("store-pause", func(duration time.Duration) {
			old := s.HangMaster()
			s.WaitForFailover(old)
			w.waitDuringFault(duration)
			old.Resume()
			s.WaitForReplicas()
		})
		w.addFault("switch-over", func(time.Duration) { s.Failover() })
		w.addFlush(s.Master)
	}
}

func startCluster(w *world) {
	c := redistest.Cluster(w.t)
	w.setStore("cluster", c.Addrs()...)
	slot := func() int {
		names := []string{"plain", "fair", "slots", "shared", "minhold", "delay"}
		return c.SlotOf(names[w.r.IntN(len(names))])
	}
	w.addFault("store-restart", func(duration time.Duration) {
		s := slot()
		old := c.KillMasterOf(s)
		c.WaitForFailover(s, old)
		w.waitDuringFault(duration)
		old.Restart()
		c.WaitUntilWell()
	})
	w.addFault("switch-over", func(time.Duration) {
		c.Failover(slot())
		c.WaitUntilWell()
	})
	w.addFault("move-slot", func(duration time.Duration) {
		s := slot()
		move := c.BeginMove(s, c.MasterOtherThan(s))
		w.waitDuringFault(duration)
		move.Keys()
		w.waitDuringFault(duration / 2)
		move.Finish()
		c.WaitUntilWell()
	})
	w.addFlush(func() *redistest.Node { return c.MasterOf(slot()) })
}

// startRedlock starts five servers, the first of them with the shim, and makes them the nodes of a
// Redlock with this longest TTL. The nodes are known by the addresses of their proxies.
func startRedlock(maxTTL time.Duration, conf ...string) func(*world) {
	return func(w *world) {
		t, shim := newShim(w.t)
		var nodes []*redistest.Node
		var addrs []string
		for _, t := range []testing.TB{t, w.t, w.t, w.t, w.t} {
			n := redistest.Single(t, conf...)
			nodes, addrs = append(nodes, n), append(addrs, n.Addr())
		}
		w.addProxies("redlock", addrs...)
		w.Store.MaxTTL = maxTTL
		w.direct = w.Store
		w.Mixed = maxTTL == longTTL
		if err := redlock.Admin(w.Store.Nodes(), w.Store.RedlockOptions()...).Init(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		if !w.Mixed { // a node stays away for as long as MaxTTL
			w.minority = 2
		}
		w.addServerFaults(shim, listOf(nodes)...)
		w.addFlush(func() *redistest.Node { return nodes[w.r.IntN(len(nodes))] })
	}
}

// listOf returns servers of one kind as servers of any.
func listOf[S pair.Server](servers []S) (all []pair.Server) {
	for _, s := range servers {
		all = append(all, s)
	}
	return all
}

func startPG(kind string) func(*world) {
	return startSQL(kind, func(t testing.TB) pair.Server { return pgtest.Start(t) }, func(addr string) error {
		return pair.ExecPostgres(pgtest.URL(addr), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`)
	})
}

func startMySQL(w *world) {
	startSQL("mysql", func(t testing.TB) pair.Server { return mysqltest.Start(t) }, killMySQL)(w)
}

// startSQL returns how to start a database. endSessions ends about half of its sessions.
func startSQL(kind string, start func(testing.TB) pair.Server, endSessions func(addr string) error) func(*world) {
	return func(w *world) {
		t, shim := newShim(w.t)
		s := start(t)
		w.Mixed = kind != "pgsession"
		w.addProxies(kind, s.Addr())
		w.addServerFaults(shim, s)
		w.addFault("kill-session", func(time.Duration) {
			if err := endSessions(s.Addr()); err != nil {
				w.t.Errorf("end sessions: %v", err)
			}
		})
		if w.exclusive {
			w.keepRunning(s)
		}
	}
}

func killMySQL(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, err := sql.Open("mysql", mysqltest.DSN(addr))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var ids string
	const others = "SELECT coalesce(group_concat(id), '') FROM information_schema.processlist WHERE user = ? AND id <> CONNECTION_ID() AND rand() < 0.5"
	if err := db.QueryRowContext(ctx, others, mysqltest.User).Scan(&ids); err != nil {
		return err
	}
	for _, id := range strings.FieldsFunc(ids, func(c rune) bool { return c == ',' }) {
		_, _ = db.ExecContext(ctx, "KILL "+id) // it may have ended
	}
	return nil
}

func startPromotePG(lags bool) func(*world) {
	return func(w *world) {
		w.addPromotion("pg", pair.Postgres(w.t, !lags), lags)
	}
}

func startPromoteMySQL(lags bool) func(*world) {
	return func(w *world) { w.addPromotion("mysql", pair.MySQL(w.t, !lags), lags) }
}

// addPromotion sets the store, and adds the fault that a primary dies and its replica replaces it.
// If lags is set, the replica lacks the latest changes.
func (w *world) addPromotion(kind string, p *pair.Pair, lags bool) {
	w.t.Helper()
	clients := livetest.NewProxy(w.t, p.Primary.Addr())
	w.setStore(kind, clients.Addr())
	w.Mixed = true
	w.addFault("failover", func(duration time.Duration) {
		p.Failover(func() {
			clients.Redirect(p.Primary.Addr())
			clients.Cut()
		}, func(fail func()) {
			if lags {
				w.waitDuringFault(duration)
			}
			fail()
		})
	})
}

// zkSilence is how long servers of the ensemble tolerate a silent leader.
const zkSilence = 3 * time.Second

func startZK(kind string) func(*world) {
	return func(w *world) {
		var c *zktest.Cluster
		m := newMesh(w.t, 3, func(i int) int { return c.Servers[i].PID() })
		c = zktest.EnsembleThrough(w.t, m.proxyAddr)
		w.addProxies(kind, c.Addrs()...)
		w.addPartition(m, func() int { return slices.Index(c.Servers, c.Leader()) }, zkSilence)
		w.addServerFaults(nil, listOf(c.Servers)...)
	}
}

func startEtcd(w *world) {
	var c *etcdtest.ClusterSetup
	m := newMesh(w.t, 3, func(i int) int { return c.Members[i].PID() })
	c = etcdtest.ClusterThrough(w.t, 3, m.proxyAddr)
	w.addProxies("etcd", c.Addrs()...)
	w.addPartition(m, func() int { return slices.Index(c.Members, c.Leader()) }, time.Second)
	w.addServerFaults(nil, listOf(c.Members)...)
	w.addFault("kill-session", func(time.Duration) {
		out, err := c.Members[0].TryCtl("lease", "list")
		if err != nil {
			w.t.Errorf("list leases: %v", err)
		}
		ids := strings.Fields(out)
		for _, id := range ids[min(len(ids), 3):] { // "found 3 leases", and then the ids
			_, _ = c.Members[0].TryCtl("lease", "revoke", id) // it may have ended
		}
	})
}
