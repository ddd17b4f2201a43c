package etcdlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// puts returns the keys that the interceptor has seen put, each once.
func (k *interceptor) puts() (all []string) {
	for _, c := range k.calls() {
		if c.what == "put" && !slices.Contains(all, c.key) {
			all = append(all, c.key)
		}
	}
	return all
}

// TestKeysNotAgain ends requests in ways after which their key may exist, now or later: no
// later request uses it. A put that etcd executes late, such as by a member that hung, is undone.
func TestKeysNotAgain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		putLate bool
		run     func(t *testing.T, d driver.Driver, k *interceptor)
	}{
		{"PutUnheard", true, func(t *testing.T, d driver.Driver, k *interceptor) {
			k.set(hookOnce("put", loseAnswer))
			release(t, acquire(t, d, request("name", "a")))
		}},
		{"PutGivenUp", true, func(t *testing.T, d driver.Driver, k *interceptor) {
			ctx, cancel := context.WithCancel(t.Context())
			k.set(hookOnce("put", func(c call) error {
				cancel()
				<-c.ctx.Done()
				return c.ctx.Err()
			}))
			if _, err := d.Acquire(ctx, request("name", "a")); !errors.Is(err, context.Canceled) {
				t.Fatalf("Acquire = %v, want the cause of its context", err)
			}
		}},
		{"DeleteUnheard", false, func(t *testing.T, d driver.Driver, k *interceptor) {
			k.set(hookOnce("delete", loseAnswer))
			release(t, acquire(t, d, request("name", "a")))
		}},
		{"MinHold", false, func(t *testing.T, d driver.Driver, k *interceptor) {
			k.set(nil)
			req := request("name", "a")
			req.MinHold = 5 * time.Second // in which the lock is asked for
			since := driver.Now()
			release(t, acquire(t, d, req))
			checkHeld(t, d, "name", "while MinHold keeps it")
			l := acquire(t, d, request("name", "b"))
			if kept := driver.Now().Sub(since); kept < req.MinHold {
				t.Errorf("granted %v after a hold with a MinHold of %v", kept, req.MinHold)
			}
			release(t, l)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := dialShared(t)
			k := intercept(client)
			d := open(t, client)
			release(t, acquire(t, d, request("name", "warm")))
			tt.run(t, d, k)
			first := k.puts()[0]
			k.set(nil)
			if tt.putLate {
				if _, err := dialShared(t).Put(t.Context(), first, "", clientv3.WithLease(leaseIn(t, first))); err != nil {
					t.Fatal(err)
				}
				awaitNoKeys(t, client, "name")
			}
			release(t, acquire(t, d, request("name", "later")))
			if got := k.puts(); slices.Contains(got, first) {
				t.Errorf("a key in doubt, %q, is used again", first)
			}
		})
	}
}

// TestOldKeyInView has a watch lag. It shows the key of a request as it was in an earlier hold:
// at the head of the queue.
func TestOldKeyInView(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	var gate sync.RWMutex // write-locked while no event passes
	client.Watcher = filteredWatcher{client.Watcher, func(ctx context.Context, _ clientv3.WatchResponse) bool {
		gate.RLock()
		defer gate.RUnlock()
		return ctx.Err() == nil
	}}
	k := intercept(client)
	var asked atomic.Pointer[context.CancelFunc] // to call a second after the request has put its key
	k.set(func(c call) error {
		err := c.do()
		if cancel := asked.Load(); cancel != nil && c.what == "put" {
			time.AfterFunc(time.Second, *cancel) // a wrong grant would come at once
		}
		return err
	})
	d, other := open(t, client), open(t, dialShared(t))
	l := acquire(t, other, request("view", "first"))
	w := livetest.Waiting(t, d, request("view", "a"))
	release(t, l)
	l = w.Get(t) // the driver watches
	gate.Lock()
	unblock := sync.OnceFunc(gate.Unlock)
	defer unblock()
	release(t, l)
	held := acquire(t, other, request("view", "second"))
	// The driver compares the watch with etcd after 2 s.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked.Store(&cancel)
	if got, err := d.Acquire(ctx, request("view", "a")); err == nil {
		t.Fatalf("Acquire = token %d while another process holds the lock with token %d", got.Grant().Token,
			held.Grant().Token)
	}
	if got := k.puts(); len(got) != 1 {
		t.Fatalf("the driver has put the keys %q; this test is about one that is used again", got)
	}
	unblock()
	w = livetest.Waiting(t, d, request("view", "a"))
	release(t, held)
	release(t, w.Get(t))
}

// TestDeafAgain has a watch fall silent while it shows an earlier hold with the key of a
// request. The comparison with etcd finds that it is behind, although the keys are the same.
func TestDeafAgain(t *testing.T) {
	client := dialShared(t)
	var silent atomic.Bool
	client.Watcher = silence(client.Watcher, func() bool { return !silent.Load() })
	d, other := open(t, client), open(t, dialShared(t))
	l := acquire(t, other, request("silent", "first"))
	w := livetest.Waiting(t, d, request("silent", "a"))
	release(t, l)
	l = w.Get(t) // the driver watches
	silent.Store(true)
	release(t, l)
	slack := livetest.Slack(t)
	began := time.Now()
	release(t, acquire(t, d, request("silent", "a")))
	if took := time.Since(began); took > 5*time.Second+slack() {
		t.Errorf("a watch that hangs cost a request %v", took)
	}
}
