//go:build linux

package nemesis

import (
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// zkSilence is how long servers of the ensemble tolerate a silent leader.
const zkSilence = 3 * time.Second

func startZK(kind string) func(*world) {
	return func(w *world) {
		var c *zktest.Cluster
		m := newMesh(w.t, 3, func(i int) int { return c.Servers[i].PID() })
		c = zktest.EnsembleThrough(w.t, m.proxyAddr)
		w.addPartition(m, func() int { return slices.Index(c.Servers, c.Leader()) }, zkSilence)
		w.addProxies(kind, c.Addrs()...)
		w.Abandon = true
		w.addWorkerFaults()
		var servers []server
		for _, s := range c.Servers {
			servers = append(servers, s)
		}
		w.addServerFaults(servers...)
		w.lastFault = "stop-all"
		w.addFault("stop-all", func(duration time.Duration) {
			w.logFault("stop-all", "", func() {
				for _, s := range servers {
					s.Hang()
				}
				w.waitDuringFault(duration) // mostly shorter than the timeout of a session
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
	c = etcdtest.ClusterThrough(w.t, 3, m.proxyAddr)
	w.addPartition(m, func() int { return slices.Index(c.Members, c.Leader()) }, time.Second)
	w.addProxies("etcd", c.Addrs()...)
	w.Abandon = true
	w.addWorkerFaults()
	var servers []server
	for _, s := range c.Members {
		servers = append(servers, s)
	}
	w.addServerFaults(servers...)
	w.addFault("kill-session", func(time.Duration) {
		w.logFault("kill-session", "", func() {
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
