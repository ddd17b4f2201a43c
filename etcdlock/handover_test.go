package etcdlock_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// blockRequest returns the request of a caller who hands holds over by itself.
func blockRequest(name, id string, tokens int) driver.Request {
	req := request(name, id)
	req.Tokens = tokens
	return req
}

// TestBlock reserves tokens: they begin with the create revision, and end before those of the
// next key.
func TestBlock(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	d, other := open(t, client), open(t, client)
	var last uint64
	for _, tt := range []struct{ asked, want int }{{0, 1}, {1, 1}, {10, 10}, {4096, 4096}, {4097, 4096}} {
		l := acquire(t, d, blockRequest("block", "a", tt.asked))
		waiter := livetest.Waiting(t, other, request("block", "b"))
		got, err := client.Get(t.Context(), keys(t, client, "block")[0])
		if err != nil {
			t.Fatal(err)
		}
		g := l.Grant()
		if g.Tokens != tt.want {
			t.Errorf("asked for %d tokens, Grant.Tokens = %d, want %d", tt.asked, g.Tokens, tt.want)
		}
		final := g.Token + uint64(g.Tokens) - 1
		created := got.Kvs[0].CreateRevision
		if first, end := int64(g.Token>>16), int64(final>>16); first != created || end != created {
			t.Errorf("the tokens %d to %d are of the revisions %d to %d, want %d", g.Token, final, first, end, created)
		}
		if g.Token <= last {
			t.Errorf("Token = %d after %d", g.Token, last)
		}
		release(t, l)
		next := waiter.Get(t)
		// Its key was created right after the first, while the block was in use.
		if next.Grant().Token <= final {
			t.Errorf("Token = %d after the block from %d to %d", next.Grant().Token, g.Token, final)
		}
		last = next.Grant().Token
		release(t, next)
	}
}

// checkWanted checks that a holder learns within a second that it is wanted.
func checkWanted(t *testing.T, wanted <-chan struct{}, by string) {
	t.Helper()
	mustBeToldWithin(t, time.Second, wanted, by)
}

// mustBeToldWithin checks that a holder learns in time that it is wanted; later if the machine is
// late.
func mustBeToldWithin(t *testing.T, limit time.Duration, wanted <-chan struct{}, by string) {
	t.Helper()
	slack, began := livetest.Slack(t), time.Now()
	select {
	case <-wanted:
	case <-time.After(livetest.Patience):
		t.Fatalf("the holder of a block is not told of %s within %v", by, livetest.Patience)
	}
	if took := time.Since(began); took > limit+slack() {
		t.Errorf("the holder of a block was told of %s after %v, want %v at most", by, took, limit)
	}
}

// checkNotWanted checks that a holder has not learned that it is wanted.
func checkNotWanted(t *testing.T, wanted <-chan struct{}, by string) {
	t.Helper()
	select {
	case <-wanted:
		t.Errorf("the holder of a block is told that another process waits, because of %s", by)
	default:
	}
}

// TestWanted has others queue behind the holder of a block. Those of its own process do not
// count, and all others do.
func TestWanted(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	tests := []struct {
		name  string
		queue func(t *testing.T, name string) (leave func())
	}{
		{"Driver", func(t *testing.T, name string) func() {
			w := livetest.Waiting(t, open(t, client), request(name, "other"))
			return func() { release(t, w.Get(t)) }
		}},
		{"Mutex", func(t *testing.T, name string) func() {
			locked, unlock := mutexLock(t, client, name)
			awaitKeys(t, client, name, 3) // also those of the holder, and of the next one
			return func() { await(t, locked); unlock() }
		}},
		{"Etcdctl", func(t *testing.T, name string) func() {
			locked, unlock := ctlLock(t, server, name)
			awaitKeys(t, client, name, 3) // likewise
			return func() { await(t, locked); unlock() }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, client)
			block := func(id string) (driver.Request, <-chan struct{}) {
				return livetest.WithWanted(blockRequest(tt.name, id, 10))
			}
			first, firstWanted := block("first")
			second, secondWanted := block("second")
			third, thirdWanted := block("third")
			l := acquire(t, d, first)
			waiter2, waiter3 := livetest.Waiting(t, d, second), livetest.Waiting(t, d, third)
			checkNotWanted(t, firstWanted, "waiters of its own process")
			release(t, l)
			l = waiter2.Get(t) // by the watch, which has reported the third by then
			checkNotWanted(t, secondWanted, "a waiter of its own process")
			leave := tt.queue(t, tt.name)
			checkWanted(t, secondWanted, "one that came")
			release(t, l)
			l = waiter3.Get(t)
			checkWanted(t, thirdWanted, "one that was there")
			release(t, l)
			leave()
			alone, aloneWanted := block("a")
			l = acquire(t, d, alone)
			checkNotWanted(t, aloneWanted, "one that has gone")
			release(t, l)
		})
	}
}

// TestWantedDeaf has a holder's watch report nothing, and one that can't begin: waiters
// elsewhere do not starve.
func TestWantedDeaf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		wrap func(clientv3.Watcher) clientv3.Watcher
	}{
		{"Hangs", func(w clientv3.Watcher) clientv3.Watcher { return silence(w, never) }},
		{"Fails", func(w clientv3.Watcher) clientv3.Watcher { return failingWatcher{w} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := dialShared(t)
			client.Watcher = tt.wrap(client.Watcher)
			req, wanted := livetest.WithWanted(blockRequest(tt.name, "a", 10))
			l := acquire(t, open(t, client), req)
			w := livetest.Waiting(t, open(t, dialShared(t)), request(tt.name, "b"))
			mustBeToldWithin(t, 5*time.Second, wanted, "a waiter, without its watch") // it is compared every 2 s
			release(t, l)
			release(t, w.Get(t))
		})
	}
}

// A failingWatcher ends all watches at once.
type failingWatcher struct{ clientv3.Watcher }

func (failingWatcher) Watch(context.Context, string, ...clientv3.OpOption) clientv3.WatchChan {
	none := make(chan clientv3.WatchResponse)
	close(none)
	return none
}
