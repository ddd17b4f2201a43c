//go:build linux

package nemesis

import (
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/internal/livetest"
)

// startServed returns how to start two replicas of a lock service on a store. With secure, clients
// reach them by TLS, and wait over HTTP/2.
func startServed(start func(*world), secure bool) func(*world) {
	return func(w *world) {
		start(w)
		behind := w.direct
		w.Mixed = false
		certs := ""
		if secure {
			certs = w.dir
			livetest.Certify(w.t, certs)
		}
		var replicas []*store.Replica
		var addrs []string
		for range 2 {
			r := store.StartReplica(w.t, store.NewService(w.t, behind, certs))
			replicas, addrs = append(replicas, r), append(addrs, r.Addr())
		}
		w.use("served", &servers.Set{
			T: w.t, Addrs: addrs, All: servers.List(replicas),
			Hit: func(rng *rand.Rand) servers.Server { return replicas[rng.IntN(len(replicas))] },
		})
		w.Store.Certs, w.direct = certs, behind
	}
}

// idleBound is how long nobody may have a lock that a service serves: a TTL, for the hold of a
// replica that died between the grant and its answer, the 3 s for which the place of a dead client
// blocks others, and what requests take.
const idleBound = ttl + 5*time.Second
