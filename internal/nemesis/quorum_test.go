//go:build linux

package nemesis

import (
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// zkSilence is for how long servers of the ensemble bear the silence of their leader.
const zkSilence = 3 * time.Second

func startZK(kind string) func(*world) {
	return func(w *world) {
		var c *zktest.Cluster
		m := newMesh(w.t, 3, func(i int) int { return c.Servers[i].PID() })
		c = zktest.EnsembleThrough(w.t, m.through)
		w.partition(m, func() int { return slices.Index(c.Servers, c.Leader()) }, zkSilence)
		w.direct = Store{Kind: kind, Addrs: c.Addrs()}
		w.Store = Store{Kind: kind, Addrs: w.proxy(c.Addrs()...)}
		w.Abandon = true
		w.workerFaults()
		var servers []server
		for _, s := range c.Servers {
			servers = append(servers, s)
		}
		w.serverFaults(servers...)
		w.last = "stop-all"
		w.add("stop-all", func(last time.Duration) {
			w.during("stop-all", "", func() {
				for _, s := range servers {
					s.Hang()
				}
				w.meanwhile(last) // mostly shorter than a session lives
				for _, s := range servers {
					s.Resume()
				}
			})
		})
	}
}

func startEtcd(w *world) {
	var c *etcdtest.ClusterSetup
	m := newMesh(w.t, 3, func(i int) int { return c.Members[i].PID() })
	c = etcdtest.ClusterThrough(w.t, 3, m.through)
	w.partition(m, func() int { return slices.Index(c.Members, c.Leader()) }, time.Second)
	w.direct = Store{Kind: "etcd", Addrs: c.Addrs()}
	w.Store = Store{Kind: "etcd", Addrs: w.proxy(c.Addrs()...)}
	w.Abandon = true
	w.workerFaults()
	var servers []server
	for _, s := range c.Members {
		servers = append(servers, s)
	}
	w.serverFaults(servers...)
	w.add("kill-session", func(time.Duration) {
		w.during("kill-session", "", func() {
			out, err := c.Members[0].TryCtl("lease", "list")
			if err != nil {
				w.t.Errorf("list leases: %v", err)
			}
			ids := strings.Fields(out)
			for _, id := range ids[min(len(ids), 3):] { // "found 3 leases", and then the ids
				_, _ = c.Members[0].TryCtl("lease", "revoke", id) // it may have ended
			}
		})
	})
}
