//go:build linux

package nemesis

import (
	"strings"
	"time"

	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

func startZK(kind string) func(*world) {
	return func(w *world) {
		c := zktest.Ensemble(w.t)
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
	c := etcdtest.Cluster(w.t, 3)
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
