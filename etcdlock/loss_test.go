package etcdlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestHolderTold checks that a holder learns at once that its key or its session is gone, and
// not by the next keep-alive, which is seconds away.
func TestHolderTold(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	d := newDriver(t, client, etcdlock.Timeout(5*time.Minute))
	t.Cleanup(func() { d.Close() })
	for name, end := range map[string]func(key string){
		"deleted": func(key string) { server.Ctl("del", key) },
		"revoked": func(key string) { server.Ctl("lease", "revoke", fmt.Sprintf("%x", leaseIn(t, key))) },
	} {
		_, lost := jobtest.AcquireTold(t, d, request(name, "a"))
		_, rest := jobtest.AcquireTold(t, d, request(name+" too", "a"))
		end(keys(t, client, name)[0])
		jobtest.AwaitLoss(t, lost, livetest.Patience)
		if name == "revoked" {
			jobtest.AwaitLoss(t, rest, livetest.Patience)
		}
	}
	// A release is not a loss, even if its key is kept.
	for i := range 20 {
		req := request(fmt.Sprint("released", i), "a")
		if i%2 == 1 {
			req.MinHold = time.Second
		}
		l, lost := jobtest.AcquireTold(t, d, req)
		if i%4 < 2 {
			livetest.Await(t, "watch of the key", func() error {
				if watchCount(t, server) == 0 {
					return fmt.Errorf("there is none")
				}
				return nil
			})
		}
		release(t, l)
		select {
		case err := <-lost:
			t.Errorf("OnLost was called with %v by a release", err)
		default:
		}
	}
}

// TestHolderToldAfterCut breaks a stream of watches. The next stream reports what has happened
// meanwhile.
func TestHolderToldAfterCut(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	client := dial(t, server)
	d := newDriver(t, dial(t, server, proxy.Addr()), etcdlock.Timeout(5*time.Minute))
	t.Cleanup(func() { d.Close() })
	_, first := jobtest.AcquireTold(t, d, request("first", "a"))
	_, second := jobtest.AcquireTold(t, d, request("second", "a"))
	heal := proxy.Sever()
	server.Ctl("del", keys(t, client, "first")[0])
	heal()
	jobtest.AwaitLoss(t, first, livetest.Patience)
	server.Ctl("del", keys(t, client, "second")[0])
	jobtest.AwaitLoss(t, second, livetest.Patience)
}

// TestLongOutage keeps the server from a waiter for 40 s, so that its session ends. The waiter
// queues again when the server is back.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	livetest.Long(t)
	const outage = 40 * time.Second
	for _, hung := range []bool{false, true} {
		t.Run(fmt.Sprintf("Hung=%v", hung), func(t *testing.T) {
			t.Parallel()
			server := etcdtest.Start(t)
			proxy := livetest.NewProxy(t, server.Addr())
			other := open(t, dial(t, server))
			holder := acquire(t, other, request("job", "holder"))
			w := jobtest.Waiting(t, open(t, dial(t, server, proxy.Addr())), request("job", "waiter"))
			var end func()
			if hung {
				server.Hang()
				end = server.Resume
			} else {
				end = proxy.Sever()
			}
			time.Sleep(outage) // the outage itself
			w.Running(t, "during the outage")
			end()
			if !hung { // otherwise the holder's session has ended, too
				w.Running(t, "while another holds")
				release(t, holder)
			}
			release(t, w.Get(t))
		})
	}
}

// TestLapse has a hold end in the process alone. It does not last with the session.
func TestLapse(t *testing.T) {
	t.Parallel()
	client := dial(t, etcdtest.Start(t))
	jobtest.Lapse(t, func() driver.Driver { return open(t, client) })
}

// TestStaleHandOver checks that a lease that was ended by force is not handed over within the
// process.
func TestStaleHandOver(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	in := open(t, client)
	for name, end := range map[string]func(name, id string){
		"Broken": func(name, id string) {
			if err := in.Break(t.Context(), name, id); err != nil {
				t.Fatal(err)
			}
		},
		"Deleted": func(name, _ string) { server.Ctl("del", keys(t, client, name)[0]) },
		"Revoked": func(name, _ string) {
			server.Ctl("lease", "revoke", fmt.Sprintf("%x", leaseIn(t, keys(t, client, name)[0])))
		},
	} {
		t.Run(name, func(t *testing.T) {
			jobtest.StaleHandOver(t, func() driver.Driver { return open(t, dial(t, server)) }, end)
		})
	}
}
