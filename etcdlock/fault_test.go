package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// errDown is what the client says of a member that is gone.
var errDown = status.Error(codes.Unavailable, "the connection was closed, say the tests")

// A call is one that a driver makes of etcd: "put", "delete" or "get" of one key.
type call struct {
	ctx  context.Context
	what string
	key  string
	do   func() error // has etcd do it
}

// A tap is a client's calls. The hook, if there is one, does them or not, and says how they went.
type tap struct {
	clientv3.KV
	mu   sync.Mutex
	hook func(call) error
	seen []call
}

// tapped puts a tap on a client.
func tapped(client *clientv3.Client) *tap {
	k := &tap{KV: client.KV}
	client.KV = k
	return k
}

func (k *tap) set(hook func(call) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hook, k.seen = hook, nil
}

// calls returns what was called since the hook was set.
func (k *tap) calls() []call {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.seen)
}

func (k *tap) pass(c call) error {
	k.mu.Lock()
	hook := k.hook
	k.seen = append(k.seen, c)
	k.mu.Unlock()
	if hook == nil {
		return c.do()
	}
	return hook(c)
}

func (k *tap) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (got *clientv3.GetResponse, err error) {
	err = k.pass(call{ctx, "get", key, func() (err error) {
		got, err = k.KV.Get(ctx, key, opts...)
		return err
	}})
	return got, err
}

func (k *tap) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (got *clientv3.DeleteResponse, err error) {
	err = k.pass(call{ctx, "delete", key, func() (err error) {
		got, err = k.KV.Delete(ctx, key, opts...)
		return err
	}})
	return got, err
}

func (k *tap) Txn(ctx context.Context) clientv3.Txn {
	return &tappedTxn{Txn: k.KV.Txn(ctx), tap: k, ctx: ctx, what: "get"}
}

type tappedTxn struct {
	clientv3.Txn
	tap       *tap
	ctx       context.Context
	what, key string
}

func (x *tappedTxn) If(cs ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(cs...); return x }
func (x *tappedTxn) Else(os ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(os...); return x }
func (x *tappedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		switch {
		case op.IsPut():
			x.what, x.key = "put", string(op.KeyBytes())
		case op.IsDelete():
			x.what, x.key = "delete", string(op.KeyBytes())
		}
	}
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *tappedTxn) Commit() (got *clientv3.TxnResponse, err error) {
	err = x.tap.pass(call{x.ctx, x.what, x.key, func() (err error) {
		got, err = x.Txn.Commit()
		return err
	}})
	if err != nil {
		got = nil
	}
	return got, err
}

// once is a hook that does something at the first call of a kind, and passes on all others.
func once(what string, at func(call) error) func(call) error {
	var first sync.Once
	return func(c call) error {
		err, hooked := error(nil), false
		if c.what == what {
			first.Do(func() { err, hooked = at(c), true })
		}
		if hooked {
			return err
		}
		return c.do()
	}
}

// unheard has etcd do a call, and loses the answer.
func unheard(c call) error { return errors.Join(c.do(), errDown) }

// TestLostAnswers has etcd do what it is asked, and its answer lost.
func TestLostAnswers(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	other := open(t, client)
	tests := []struct {
		name string
		what string
		run  func(t *testing.T, name string, d *etcdlock.Driver)
	}{
		{"Put", "put", func(t *testing.T, name string, d *etcdlock.Driver) {
			l := acquire(t, d, request(name, "a"))
			if got := keys(t, client, name); len(got) != 1 {
				t.Errorf("after an acquisition whose first answer was lost the keys are %q, want one", got)
			}
			release(t, l)
		}},
		{"PutToWait", "put", func(t *testing.T, name string, d *etcdlock.Driver) {
			l := acquire(t, other, request(name, "holder"))
			w := jobtest.Waiting(t, d, request(name, "a"))
			if got := keys(t, client, name); len(got) != 2 {
				t.Errorf("after a request whose first answer was lost the keys are %q, want two", got)
			}
			release(t, l)
			release(t, w.Get(t))
		}},
		{"PutRefused", "put", func(t *testing.T, name string, d *etcdlock.Driver) {
			l := acquire(t, other, request(name, "holder"))
			refused(t, d, name, "of a lock that is held, with its first answer lost,")
			if got := keys(t, client, name); len(got) != 1 {
				t.Errorf("after a refusal whose first answer was lost the keys are %q, want the holder's", got)
			}
			release(t, l)
		}},
		{"Delete", "delete", func(t *testing.T, name string, d *etcdlock.Driver) {
			release(t, acquire(t, d, request(name, "a")))
		}},
		{"Check", "get", func(t *testing.T, name string, d *etcdlock.Driver) {
			l := acquire(t, other, request(name, "holder"))
			w := jobtest.Waiting(t, d, request(name, "a"))
			release(t, l)
			release(t, w.Get(t))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own := dial(t, server)
			k := tapped(own)
			d := open(t, own)
			release(t, acquire(t, d, request("warm "+tt.name, "a"))) // the session is there
			lost := 0
			k.set(once(tt.what, func(c call) error { lost++; return unheard(c) }))
			tt.run(t, tt.name, d)
			if lost != 1 {
				t.Errorf("%d answers were lost, want one", lost)
			}
			noKeys(t, client, tt.name)
		})
	}
}

// TestLateRequest gives an acquisition up whose request is under way, and has etcd get it after all when the driver has
// taken it back already: by a member that hung, say.
func TestLateRequest(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	k := tapped(client)
	d := open(t, client)
	release(t, acquire(t, d, request("late", "earlier")))
	ctx, cancel := context.WithCancel(t.Context())
	var late call
	k.set(once("put", func(c call) error {
		late = c
		cancel()
		<-c.ctx.Done()
		return c.ctx.Err()
	}))
	if _, err := d.Acquire(ctx, request("late", "a")); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire = %v, want the cause of its context", err)
	}
	if _, err := dial(t, server).Put(t.Context(), late.key, "", clientv3.WithLease(leaseIn(t, late.key))); err != nil {
		t.Fatal(err)
	}
	noKeys(t, client, "late")
	release(t, acquire(t, d, noWait("late", "b")))
}

// TestLateRepeat has a request time out and be repeated, and etcd get the first one when the lock was released again.
func TestLateRepeat(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	k := tapped(client)
	d := open(t, client)
	release(t, acquire(t, d, request("repeat", "earlier")))
	var late call
	k.set(once("put", func(c call) error { late = c; return errDown }))
	l := acquire(t, d, request("repeat", "a"))
	release(t, l)
	if _, err := dial(t, server).Put(t.Context(), late.key, "", clientv3.WithLease(leaseIn(t, late.key))); err != nil {
		t.Fatal(err)
	}
	noKeys(t, client, "repeat")
}

// TestLateRepeatLost has a hold lose its key, and then a first request for it, which had timed out, put that key: the hold stays lost.
func TestLateRepeatLost(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	other := dial(t, server)
	if _, err := other.Get(t.Context(), "connected"); err != nil {
		t.Fatal(err)
	}
	k := tapped(client)
	d := open(t, client)
	release(t, acquire(t, d, request("repeat", "earlier")))
	var late call
	k.set(once("put", func(c call) error { late = c; return errDown }))
	l := acquire(t, d, request("repeat", "a"))
	_, err := other.Delete(t.Context(), late.key) // at once: the driver does not watch the key yet
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Put(t.Context(), late.key, "", clientv3.WithLease(leaseIn(t, late.key))); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release of a hold whose key was deleted, and put again, = %v, want ErrLost", err)
	}
	noKeys(t, client, "repeat")
}

// TestCancelled gives acquisitions up while etcd does what it was asked, and does not answer: they return at once, and leave
// nothing.
func TestCancelled(t *testing.T) {
	tests := []struct {
		name string
		held bool // by another, until the acquisition waits or is given up
		at   func(what, key string, puts int) bool
	}{
		{"Granted", false, func(what, _ string, puts int) bool { return what == "put" && puts == 1 }},
		{"Queued", true, func(what, _ string, puts int) bool { return what == "put" && puts == 2 }}, // the first finds it held
		{"Checked", true, func(what, key string, _ int) bool { return what == "get" && key != "name/" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := etcdtest.Start(t)
			client, free := dial(t, server), dial(t, server)
			k := tapped(client)
			d, other := open(t, client), open(t, free)
			release(t, acquire(t, d, request("name", "earlier")))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var puts atomic.Int32
			given := make(chan time.Time, 1) // of one: one call is given up
			k.set(func(c call) error {
				if c.what == "put" {
					puts.Add(1)
				}
				err := c.do()
				if !tt.at(c.what, c.key, int(puts.Load())) {
					return err
				}
				given <- time.Now()
				cancel()
				<-c.ctx.Done()
				return errors.Join(err, c.ctx.Err())
			})
			var l driver.Lease
			if tt.held {
				l = acquire(t, other, request("name", "holder"))
			}
			done := make(chan error, 1)
			go func() {
				_, err := d.Acquire(ctx, request("name", "a"))
				done <- err
			}()
			if tt.name == "Checked" {
				livetest.Await(t, "waiter", func() error {
					if got := keys(t, free, "name"); len(got) != 2 {
						return fmt.Errorf("the keys are %q", got)
					}
					return nil
				})
				release(t, l)
			}
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Acquire = %v, want the cause of its context", err)
			}
			if took := time.Since(<-given); took > 5*time.Second {
				t.Errorf("Acquire returned %v after it was given up", took)
			}
			if tt.name == "Queued" {
				release(t, l)
			}
			noKeys(t, free, "name")
		})
	}
}

// TestReleaseUnheard has no release reach etcd in its time: what is left is swept up when etcd can be reached again, for the
// session would keep it.
func TestReleaseUnheard(t *testing.T) {
	client := dial(t, etcdtest.Start(t))
	k := tapped(client)
	d := open(t, client)
	l := acquire(t, d, request("unheard", "a"))
	k.set(func(c call) error {
		if c.what == "delete" {
			return errDown
		}
		return c.do()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := l.Release(ctx); err == nil {
		t.Fatalf("Release without etcd = nil, want an error")
	}
	if got := keys(t, client, "unheard"); len(got) != 1 {
		t.Fatalf("the keys are %q, want the one that was not deleted", got)
	}
	k.set(nil)
	noKeys(t, client, "unheard")
}

// TestGoneBeforeCheck has a waiter's lease end between the moment in which the watch shows that its turn has come, and the
// check.
func TestGoneBeforeCheck(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	k := tapped(client)
	holds, waits, third := open(t, dial(t, server)), open(t, client), open(t, dial(t, server))
	l := acquire(t, holds, request("name", "holder"))
	w := jobtest.Waiting(t, waits, request("name", "waiter"))
	next := jobtest.Waiting(t, third, request("name", "third"))
	var old string
	k.set(once("get", func(c call) error {
		old = c.key
		if _, err := client.Revoke(t.Context(), leaseIn(t, c.key)); err != nil {
			t.Error(err)
		}
		return c.do()
	}))
	release(t, l)
	first := next.Get(t) // the waiter had no key any more
	w.Running(t, "with the key of an ended lease")
	release(t, first)
	got := w.Get(t)
	if got.Grant().Token <= first.Grant().Token {
		t.Errorf("Token = %d after %d", got.Grant().Token, first.Grant().Token)
	}
	if now := keys(t, client, "name"); len(now) != 1 || now[0] == old {
		t.Errorf("the keys are %q, want one of a new session", now)
	}
	release(t, got)
}

// deaf is a client's watches without what they tell.
type deaf struct {
	clientv3.Watcher
	heard func() bool
}

func (w deaf) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	from, to := w.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() {
		defer close(to)
		for said := range from {
			if !said.Created && !w.heard() {
				continue
			}
			select {
			case to <- said:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

// TestDeafWatch has the watch of a waiter say nothing, as one on a member that hangs.
func TestDeafWatch(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	client.Watcher = deaf{client.Watcher, func() bool { return false }}
	d, other := open(t, client), open(t, dial(t, server))
	l := acquire(t, other, request("deaf", "holder"))
	w := jobtest.Waiting(t, d, request("deaf", "waiter"))
	began := time.Now()
	release(t, l)
	release(t, w.Get(t))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a watch that hangs cost a waiter %v", took)
	}
}

// TestNoHerd releases a lock that many wait for.
func TestNoHerd(t *testing.T) {
	server := etcdtest.Start(t)
	l := acquire(t, open(t, dial(t, server)), request("herd", "holder"))
	var taps []*tap
	var waits []*jobtest.Waiter
	for i := range 5 {
		client := dial(t, server)
		taps = append(taps, tapped(client))
		waits = append(waits, jobtest.Waiting(t, open(t, client), request("herd", string(rune('a'+i)))))
	}
	for _, k := range taps {
		k.set(nil)
	}
	release(t, l)
	first := waits[0].Get(t)
	for i, k := range taps {
		var got []string
		for _, c := range k.calls() {
			if c.key != "herd/" { // a look at the whole queue, because it was quiet
				got = append(got, c.what)
			}
		}
		if want := []string{"get"}; i == 0 && !slices.Equal(got, want) || i > 0 && len(got) > 0 {
			t.Errorf("after a release, waiter %d called %q; want one look of the first, and none of the others", i, got)
		}
	}
	release(t, first)
	for _, w := range waits[1:] {
		release(t, w.Get(t))
	}
}
