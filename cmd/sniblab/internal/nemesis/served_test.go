//go:build linux

package nemesis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/internal/history"
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

// progressBound is how long nobody may have a lock that a service serves: a TTL, for the hold of a
// replica that died between the grant and its answer, the 3 s for which the place of a dead client
// blocks others, and what requests take.
const progressBound = ttl + 5*time.Second

// checkProgress checks that somebody has got each lock in time after the last sign of a holder. It
// begins with the first one: a fresh Redis grants nothing at first. Slack is how late the machine
// was.
func checkProgress(t *testing.T, events []history.Event, slack time.Duration) {
	t.Helper()
	names, last, longest := map[string]string{}, map[string]int64{}, time.Duration(0)
	for _, e := range events {
		key := fmt.Sprint(e.Worker, e.ID)
		switch e.Kind {
		case history.Call:
			names[key] = e.Name
		case history.Acquired:
			name := names[key]
			gap := time.Duration(0)
			if last[name] != 0 {
				gap = time.Duration(e.At - last[name])
			}
			if longest = max(longest, gap); gap > progressBound+slack {
				t.Errorf("nobody had %s for %v, want %v at most", name, gap, progressBound+slack)
			}
			last[name] = e.At
		case history.Valid, history.Released:
			last[names[key]] = e.At
		}
	}
	t.Logf("nobody had a lock for %v at most; of the limit, %v are for the machine", longest, slack)
}
