package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// block is a request of a caller who hands holds over by itself.
func block(name, owner string, tokens int) driver.Request {
	req := request(name, owner)
	req.Tokens = tokens
	return req
}

// TestBlock reserves tokens: they begin with the create revision, and end before those of the next key.
func TestBlock(t *testing.T) {
	client := dial(t, etcdtest.Start(t))
	d, other := open(t, client), open(t, client)
	var last uint64
	for _, tt := range []struct{ asked, want int }{{0, 1}, {1, 1}, {10, 10}, {1 << 16, 1 << 16}, {1<<16 + 1, 1 << 16}} {
		l := acquire(t, d, block("block", "a", tt.asked))
		waiter := jobtest.Waiting(t, other, request("block", "b"))
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
		if first, end := etcdlock.Revision(g.Token), etcdlock.Revision(final); first != created || end != created {
			t.Errorf("the tokens %d to %d are of the revisions %d to %d, want %d", g.Token, final, first, end, created)
		}
		if g.Token <= last {
			t.Errorf("Token = %d after %d", g.Token, last)
		}
		release(t, l)
		next := waiter.Get(t)
		if next.Grant().Token <= final { // its key was created right after, while the block was in use
			t.Errorf("Token = %d after the block from %d to %d", next.Grant().Token, g.Token, final)
		}
		last = next.Grant().Token
		release(t, next)
	}
}

// TestBlockAgain has an owner ask again for what it holds: it gets no token that was not reserved, and none that it can't use.
func TestBlockAgain(t *testing.T) {
	d := open(t, dial(t, etcdtest.Start(t)))
	l := acquire(t, d, block("again", "a", 10))
	for asked, want := range map[int]int{0: 1, 5: 5, 10: 10, 20: 10} {
		again := acquire(t, d, block("again", "a", asked)).Grant()
		if again.Token != l.Grant().Token || again.Tokens != want {
			t.Errorf("asked for %d of a block of 10 at %d, got %d at %d; want %d", asked, l.Grant().Token, again.Tokens, again.Token, want)
		}
	}
	release(t, l)
}

// TestWatchForBlock looks what a hold costs etcd: a watch of its key, and one of the queue only if
// there is something to hand over.
func TestWatchForBlock(t *testing.T) {
	server := etcdtest.Start(t)
	d := open(t, dial(t, server))
	one := acquire(t, d, block("one", "a", 1))
	if wanted := one.Grant().Wanted; wanted != nil {
		t.Errorf("Wanted of a hold with one token is not nil")
	}
	const own = 1 // of the key of that hold
	livetest.Await(t, "watch of the key of a hold", func() error {
		if got := watches(t, server); got != own {
			return fmt.Errorf("for a hold with one token etcd has %d watches", got)
		}
		return nil
	})
	several := acquire(t, d, block("several", "a", 2))
	livetest.Await(t, "watch for a block", func() error {
		if got := watches(t, server); got != own+2 { // and of its own key
			return fmt.Errorf("etcd has %d watches", got)
		}
		return nil
	})
	release(t, several)
	for range 3 { // while it lingers
		release(t, acquire(t, d, block("several", "a", 2)))
	}
	livetest.Await(t, "end of the watches of keys", func() error {
		if got := watches(t, server); got != own+1 {
			return fmt.Errorf("after a few holds with blocks etcd has %d watches", got)
		}
		return nil
	})
	livetest.Await(t, "end of the watch after the last hold", func() error {
		if got := watches(t, server); got != own {
			return fmt.Errorf("etcd has %d watches", got)
		}
		return nil
	})
	release(t, one)
}

// told checks that a holder is told that it is wanted, within a second.
func told(t *testing.T, l driver.Lease, by string) {
	t.Helper()
	select {
	case <-l.Grant().Wanted:
	case <-time.After(time.Second):
		t.Errorf("the holder of a block is not told of %s within a second", by)
	}
}

// untold checks that a holder has not been told that it is wanted.
func untold(t *testing.T, l driver.Lease, by string) {
	t.Helper()
	select {
	case <-l.Grant().Wanted:
		t.Errorf("the holder of a block is told that another process waits, because of %s", by)
	default:
	}
}

// TestWanted has others queue behind the holder of a block: those of its own process are no news, and all others are.
func TestWanted(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	tests := []struct {
		name  string
		queue func(t *testing.T, name string) (leave func())
	}{
		{"Driver", func(t *testing.T, name string) func() {
			w := jobtest.Waiting(t, open(t, client), request(name, "other"))
			return func() { release(t, w.Get(t)) }
		}},
		{"Mutex", func(t *testing.T, name string) func() {
			locked, unlock := mutexLock(t, client, name)
			return func() { await(t, locked); unlock() }
		}},
		{"Etcdctl", func(t *testing.T, name string) func() {
			locked, unlock := ctlLock(t, server, name)
			return func() { await(t, locked); unlock() }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, client)
			l := acquire(t, d, block(tt.name, "first", 10))
			second, third := jobtest.Waiting(t, d, block(tt.name, "second", 10)), jobtest.Waiting(t, d, block(tt.name, "third", 10))
			untold(t, l, "waiters of its own process")
			release(t, l)
			l = second.Get(t) // by the watch, which has told of the third by then
			untold(t, l, "a waiter of its own process")
			leave := tt.queue(t, tt.name)
			told(t, l, "one that came")
			release(t, l)
			l = third.Get(t)
			told(t, l, "one that was there")
			release(t, l)
			leave()
			alone := acquire(t, d, block(tt.name, "a", 10))
			untold(t, alone, "one that has gone")
			release(t, alone)
		})
	}
}

// TestWantedShared has readers with blocks: other readers are not in their way, who writes is.
func TestWantedShared(t *testing.T) {
	client := dial(t, etcdtest.Start(t))
	d, other := open(t, client), open(t, client)
	reader := block("shared", "a", 10)
	reader.Shared = true
	beside := reader
	beside.Owner = "b"
	first := acquire(t, other, request("shared", "first"))
	one, two := jobtest.Waiting(t, d, reader), jobtest.Waiting(t, other, beside)
	release(t, first)
	l, also := one.Get(t), two.Get(t) // the first one by a watch that has told of the second by then
	if l.Grant().Token == also.Grant().Token {
		t.Errorf("two readers have the token %d", l.Grant().Token)
	}
	untold(t, l, "another reader")
	w := jobtest.Waiting(t, other, request("shared", "writer"))
	told(t, l, "a writer")
	release(t, l)
	release(t, also)
	release(t, w.Get(t))
}

// TestWantedDeaf has a holder's watch say nothing, and one that can't begin: who waits elsewhere does not starve for it.
func TestWantedDeaf(t *testing.T) {
	server := etcdtest.Start(t)
	tests := []struct {
		name string
		wrap func(clientv3.Watcher) clientv3.Watcher
	}{
		{"Hangs", func(w clientv3.Watcher) clientv3.Watcher { return deaf{w, func() bool { return false }} }},
		{"Fails", func(w clientv3.Watcher) clientv3.Watcher { return failing{w} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := dial(t, server)
			client.Watcher = tt.wrap(client.Watcher)
			l := acquire(t, open(t, client), block(tt.name, "a", 10))
			w := jobtest.Waiting(t, open(t, dial(t, server)), request(tt.name, "b"))
			select {
			case <-l.Grant().Wanted:
			case <-time.After(5 * time.Second): // it is compared every 2 s
				t.Errorf("without its watch the holder of a block is not told of a waiter within 5 s")
			}
			release(t, l)
			release(t, w.Get(t))
		})
	}
}

// failing is a client's watches where they end at once.
type failing struct{ clientv3.Watcher }

func (failing) Watch(context.Context, string, ...clientv3.OpOption) clientv3.WatchChan {
	none := make(chan clientv3.WatchResponse)
	close(none)
	return none
}

// TestHandOver has goroutines of one process, another process, and a stranger, want one lock all the time: tokens increase over all of ours, a
// transaction under each passes, the rule is to hand over within the process, and nobody starves.
func TestHandOver(t *testing.T) {
	const goroutines, turns, strangers = 8, 40, 4
	server := etcdtest.Start(t)
	client := dial(t, server)
	d := open(t, client)
	many, few := locker(t, d), locker(t, open(t, client))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var last uint64 // guarded by the lock, as are the others
	var owner string
	handedOver, inRow, most := 0, 0, 0
	visit := func(lock *snib.Lock) {
		if lock.Token() <= last {
			t.Errorf("Token = %d after %d", lock.Token(), last)
		}
		if last = lock.Token(); lock.Owner() == owner {
			handedOver++
		}
		owner = lock.Owner()
	}
	var crowd sync.WaitGroup
	for range goroutines {
		crowd.Go(func() {
			for {
				lock, err := many.Acquire(ctx, "crowd")
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Acquire in the crowd = %v", err)
					}
					return
				}
				visit(lock)
				if inRow++; inRow%100 == 1 && !passes(t, client, d.IsOwner("crowd", lock.Token())) {
					t.Errorf("a transaction under token %d fails", lock.Token())
				}
				most = max(most, inRow)
				if err := lock.Release(); err != nil {
					t.Errorf("Release in the crowd = %v", err)
				}
			}
		})
	}
	for range turns {
		lock, err := few.Acquire(t.Context(), "crowd")
		if err != nil {
			t.Fatalf("Acquire beside the crowd = %v", err)
		}
		visit(lock)
		inRow = 0
		if err := lock.Release(); err != nil {
			t.Fatalf("Release beside the crowd = %v", err)
		}
	}
	for range strangers {
		locked, unlock := mutexLock(t, client, "crowd")
		await(t, locked)
		unlock()
	}
	stop()
	crowd.Wait()
	t.Logf("%d hand-overs within a process; at most %d turns in a row beside another process", handedOver, most)
	if handedOver < 2*turns {
		t.Errorf("%d hand-overs within a process beside %d turns of another one, want many more", handedOver, turns)
	}
}

// TestNobodyStarves has goroutines of one process use a lock for a while each, and always want it again. Each lease of theirs could be handed over
// for longer than the one before it, up to seconds; another process gets its turn nevertheless.
func TestNobodyStarves(t *testing.T) {
	client := dial(t, etcdtest.Start(t))
	many, few := locker(t, open(t, client)), locker(t, open(t, client))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var crowd sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			for {
				lock, err := many.Acquire(ctx, "starve")
				if err != nil {
					return // ctx is done, or the other process will be served soon
				}
				time.Sleep(time.Millisecond) // what is done under the lock
				if err := lock.Release(); err != nil {
					t.Errorf("Release in the crowd = %v", err)
				}
			}
		})
	}
	var took []time.Duration
	for range 12 {
		began := time.Now()
		lock, err := few.Acquire(t.Context(), "starve")
		if err != nil {
			t.Fatalf("Acquire beside the crowd = %v", err)
		}
		took = append(took, time.Since(began))
		if err := lock.Release(); err != nil {
			t.Fatalf("Release beside the crowd = %v", err)
		}
	}
	stop()
	crowd.Wait()
	if longest := slices.Max(took); longest > 2*time.Second {
		t.Errorf("another process waited %v for its turns, want milliseconds", took)
	}
}

// locker returns a locker on a driver.
func locker(t *testing.T, d driver.Driver) *snib.Locker {
	t.Helper()
	l, err := snib.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// passes reports whether a transaction under a condition passes.
func passes(t *testing.T, client *clientv3.Client, iff clientv3.Cmp) bool {
	t.Helper()
	answer, err := client.Txn(t.Context()).If(iff).Then(clientv3.OpPut("data", "value")).Commit()
	if err != nil {
		t.Error(err)
		return false
	}
	return answer.Succeeded
}

// TestIsOwnerBlock writes data under each hold of a block: those that were handed over own the lock as the first one did.
func TestIsOwnerBlock(t *testing.T) {
	client := dial(t, etcdtest.Start(t))
	d, other := open(t, client), open(t, client)
	l := acquire(t, d, block("owned", "a", 10))
	first := l.Grant().Token
	for token, want := range map[uint64]bool{
		first - 1: false, first: true, first + 1: true, first + 9: true, first + 10: false, first + 1<<16: false, first >> 16: false,
	} {
		if got := passes(t, client, d.IsOwner("owned", token)); got != want {
			t.Errorf("a transaction under token %d of the ten from %d on: %v, want %v", token, first, got, want)
		}
	}
	stale := d.IsOwner("owned", first+1)
	release(t, l)
	next := acquire(t, other, block("owned", "b", 10))
	if passes(t, client, stale) || passes(t, client, d.IsOwner("owned", first+1)) {
		t.Errorf("a transaction under a hold whose lease was released passes while another process holds the lock")
	}
	release(t, next)
}

// TestRevisionTooGreat has a cluster whose revisions leave no room for tokens: it is said, and no key stays.
func TestRevisionTooGreat(t *testing.T) {
	client := dial(t, etcdtest.Start(t))
	d := open(t, client)
	client.KV = aged{client.KV}
	for _, req := range []driver.Request{request("aged", "a"), noWait("aged", "b")} {
		_, err := d.Acquire(t.Context(), req)
		if err == nil || !containsAll(err.Error(), "revision 1407374883", "tokens have room") {
			t.Errorf("Acquire with NoWait %v at a revision of more than 2^47 = %v, want an error that says so", req.NoWait, err)
		}
	}
	noKeys(t, client, "aged")
}

// aged is a client's transactions on a cluster that has seen 2^47 revisions more.
type aged struct{ clientv3.KV }

func (k aged) Txn(ctx context.Context) clientv3.Txn { return agedTxn{k.KV.Txn(ctx)} }

type agedTxn struct{ clientv3.Txn }

func (x agedTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { return agedTxn{x.Txn.If(cs...)} }
func (x agedTxn) Then(ops ...clientv3.Op) clientv3.Txn { return agedTxn{x.Txn.Then(ops...)} }
func (x agedTxn) Else(ops ...clientv3.Op) clientv3.Txn { return agedTxn{x.Txn.Else(ops...)} }
func (x agedTxn) Commit() (*clientv3.TxnResponse, error) {
	answer, err := x.Txn.Commit()
	if err == nil {
		answer.Header.Revision += 1 << 47
	}
	return answer, err
}
