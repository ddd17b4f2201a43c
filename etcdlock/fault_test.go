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

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// errDown is the client's error for a member that is down.
var errDown = status.Error(codes.Unavailable, "the connection was closed, say the tests")

// A call is a driver's call to etcd: "put", "delete" or "get" of one key.
type call struct {
	ctx  context.Context
	what string
	key  string
	do   func() error // executes the call
}

// An interceptor records a client's calls. The hook, if there is one, executes them or not, and
// returns their result.
type interceptor struct {
	clientv3.KV
	mu   sync.Mutex
	hook func(call) error
	seen []call
}

// intercept puts an interceptor into a client.
func intercept(client *clientv3.Client) *interceptor {
	k := &interceptor{KV: client.KV}
	client.KV = k
	return k
}

func (k *interceptor) set(hook func(call) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hook, k.seen = hook, nil
}

// calls returns the calls since the hook was set.
func (k *interceptor) calls() []call {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.seen)
}

func (k *interceptor) handle(c call) error {
	k.mu.Lock()
	hook := k.hook
	k.seen = append(k.seen, c)
	k.mu.Unlock()
	if hook == nil {
		return c.do()
	}
	return hook(c)
}

func (k *interceptor) Get(ctx context.Context, key string,
	opts ...clientv3.OpOption) (got *clientv3.GetResponse, err error) {
	err = k.handle(call{ctx, "get", key, func() (err error) {
		got, err = k.KV.Get(ctx, key, opts...)
		return err
	}})
	return got, err
}

func (k *interceptor) Delete(ctx context.Context, key string,
	opts ...clientv3.OpOption) (got *clientv3.DeleteResponse, err error) {
	err = k.handle(call{ctx, "delete", key, func() (err error) {
		got, err = k.KV.Delete(ctx, key, opts...)
		return err
	}})
	return got, err
}

func (k *interceptor) Txn(ctx context.Context) clientv3.Txn {
	return &interceptedTxn{Txn: k.KV.Txn(ctx), interceptor: k, ctx: ctx, what: "get"}
}

type interceptedTxn struct {
	clientv3.Txn
	interceptor *interceptor
	ctx         context.Context
	what, key   string
}

func (x *interceptedTxn) If(cs ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(cs...); return x }
func (x *interceptedTxn) Else(os ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(os...); return x }
func (x *interceptedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
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

func (x *interceptedTxn) Commit() (got *clientv3.TxnResponse, err error) {
	err = x.interceptor.handle(call{x.ctx, x.what, x.key, func() (err error) {
		got, err = x.Txn.Commit()
		return err
	}})
	if err != nil {
		got = nil
	}
	return got, err
}

// hookOnce returns a hook that handles the first call of a kind with hook, and executes all
// others.
func hookOnce(what string, hook func(call) error) func(call) error {
	var first sync.Once
	return func(c call) error {
		err, hooked := error(nil), false
		if c.what == what {
			first.Do(func() { err, hooked = hook(c), true })
		}
		if hooked {
			return err
		}
		return c.do()
	}
}

// loseAnswer executes a call, and loses the answer.
func loseAnswer(c call) error { return errors.Join(c.do(), errDown) }

// TestLostAnswers has etcd execute calls whose answers are lost.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
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
			w := livetest.Waiting(t, d, request(name, "a"))
			if got := keys(t, client, name); len(got) != 2 {
				t.Errorf("after a request whose first answer was lost the keys are %q, want two", got)
			}
			release(t, l)
			release(t, w.Get(t))
		}},
		{"Refused", "get", func(t *testing.T, name string, d *etcdlock.Driver) {
			l := acquire(t, other, request(name, "holder"))
			checkHeld(t, d, name, "of a lock that is held, with its first answer lost,")
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
			w := livetest.Waiting(t, d, request(name, "a"))
			release(t, l)
			release(t, w.Get(t))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own := dialShared(t)
			k := intercept(own)
			d := open(t, own)
			release(t, acquire(t, d, request("warm "+tt.name, "a"))) // so that the session exists
			lost := 0
			k.set(hookOnce(tt.what, func(c call) error { lost++; return loseAnswer(c) }))
			tt.run(t, tt.name, d)
			if lost != 1 {
				t.Errorf("%d answers were lost, want one", lost)
			}
			awaitNoKeys(t, client, tt.name)
		})
	}
}

// TestLateLabel has etcd execute a change of the label after the release. Status goes on to say
// that MinHold keeps the lock.
func TestLateLabel(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	k := intercept(client)
	d := open(t, client)
	req := request("label", "a")
	req.MinHold = time.Hour
	l := acquire(t, d, req)
	k.set(func(c call) error {
		if c.what == "put" {
			k.set(nil)
			release(t, l)
		}
		return c.do()
	})
	if err := l.SetHolder(t.Context(), driver.Holder{Label: "late"}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("SetHolder after the release = %v, want ErrLost", err)
	}
	st, err := d.Status(t.Context(), "label")
	if err != nil || len(st.Holders) != 1 || st.Holders[0].Holder.Kind != driver.KindKept {
		t.Errorf("Status = %+v, %v; want a hold that is kept", st, err)
	}
	if err := d.Break(t.Context(), "label", l.ID()); err != nil { // the server serves other tests, too
		t.Errorf("Break = %v", err)
	}
}

// TestLateRepeatLost has a hold lose its key. Then etcd executes an earlier request for it,
// which had timed out. The hold stays lost.
func TestLateRepeatLost(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	other := dialShared(t)
	if _, err := other.Get(t.Context(), "connected"); err != nil {
		t.Fatal(err)
	}
	k := intercept(client)
	d := open(t, client)
	release(t, acquire(t, d, request("repeat", "earlier")))
	var late call
	k.set(hookOnce("put", func(c call) error { late = c; return errDown }))
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
	awaitNoKeys(t, client, "repeat")
}

// TestCancelled cancels acquisitions while etcd executes their requests and does not answer.
// They return at once, and leave nothing behind.
func TestCancelled(t *testing.T) {
	tests := []struct {
		name string
		held bool // by another, until the acquisition waits or is cancelled
		at   func(what, key string, puts int) bool
	}{
		{"Granted", false, func(what, _ string, puts int) bool { return what == "put" && puts == 1 }},
		{"Queued", true, func(what, _ string, puts int) bool { return what == "put" && puts == 1 }},
		{"Checked", true, func(what, key string, _ int) bool { return what == "get" && key != "name/" }},
	}
	slack := livetest.Slack(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, free := dialShared(t), dialShared(t)
			k := intercept(client)
			d, other := open(t, client), open(t, free)
			release(t, acquire(t, d, request("name", "earlier")))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var puts atomic.Int32
			given := make(chan time.Time, 1) // of capacity 1: one call is abandoned
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
				awaitKeys(t, free, "name", 2)
				release(t, l)
			}
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Acquire = %v, want the cause of its context", err)
			}
			if took := time.Since(<-given); took > 5*time.Second+slack() {
				t.Errorf("Acquire returned %v after it was given up", took)
			}
			if tt.name == "Queued" {
				release(t, l)
			}
			awaitNoKeys(t, free, "name")
		})
	}
}

// TestGone takes the key of a waiter that the watch shows as granted: its session ends before a
// majority is asked for the key, or the key is deleted after that answer, and before the answer to
// the keep-alive from which the lease counts.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"BeforeCheck", "AfterCheck"} {
		t.Run(name, func(t *testing.T) {
			var gate sync.RWMutex // write-locked while no keep-alive is answered
			client := dialAs(t, "", "", []string{shared(t).Addr()},
				grpc.WithChainStreamInterceptor(holdAnswers("/etcdserverpb.Lease/LeaseKeepAlive", &gate)))
			k, operator := intercept(client), dial(t, shared(t))
			holds, waits, third := open(t, operator), open(t, client), open(t, operator)
			l := acquire(t, holds, request(name, "holder"))
			w := livetest.Waiting(t, waits, request(name, "waiter"))
			next := livetest.Waiting(t, third, request(name, "third"))
			old := keys(t, operator, name)[1]
			take := func(c call) error {
				_, err := operator.Revoke(t.Context(), leaseIn(t, old))
				return errors.Join(err, c.do())
			}
			if name == "AfterCheck" {
				gate.Lock()
				time.Sleep(timeout / 50) // a recent keep-alive would do for the grant
				take = func(c call) error {
					err := c.do()
					time.AfterFunc(100*time.Millisecond, gate.Unlock) // several times maxCheckAge
					_, deleted := operator.Delete(t.Context(), old)
					return errors.Join(err, deleted)
				}
			}
			k.set(hookOnce("get", take))
			release(t, l)
			first := next.Get(t) // the waiter had no key any more
			w.Running(t, "with a key that is gone")
			release(t, first)
			got := w.Get(t)
			if got.Grant().Token <= first.Grant().Token {
				t.Errorf("Token = %d after %d", got.Grant().Token, first.Grant().Token)
			}
			if now := keys(t, operator, name); len(now) != 1 || now[0] == old {
				t.Errorf("the keys are %q, want one that is not %q", now, old)
			}
			release(t, got)
		})
	}
}

// holdAnswers returns an interceptor that holds the answers on streams of a method while gate is
// write-locked.
func holdAnswers(method string, gate *sync.RWMutex) grpc.StreamClientInterceptor {
	return alterAnswers(method, func(any) error {
		gate.RLock()
		defer gate.RUnlock()
		return nil
	})
}

// alterAnswers returns an interceptor that calls alter with each answer on streams of a method. An
// error of alter takes the place of the answer.
func alterAnswers(method string, alter func(answer any) error) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, of string, streamer grpc.Streamer,
		opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, conn, of, opts...)
		if err != nil || of != method {
			return stream, err
		}
		return alteredStream{stream, alter}, nil
	}
}

type alteredStream struct {
	grpc.ClientStream
	alter func(answer any) error
}

func (s alteredStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	return s.alter(m)
}

// A filteredWatcher reports the answers of a client's watches for which passes returns true.
type filteredWatcher struct {
	clientv3.Watcher
	passes func(context.Context, clientv3.WatchResponse) bool
}

// silence returns a watcher that drops events unless passes is true.
func silence(w clientv3.Watcher, passes func() bool) clientv3.Watcher {
	return filteredWatcher{w, func(_ context.Context, resp clientv3.WatchResponse) bool {
		return resp.Created || passes()
	}}
}

func never() bool { return false }

func (w filteredWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	from, to := w.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() {
		defer close(to)
		for resp := range from {
			if !w.passes(ctx, resp) {
				continue
			}
			select {
			case to <- resp:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

// TestDeafWatch has the watch of a waiter get no answer, or none after its announcement, as on a
// member that hangs.
func TestDeafWatch(t *testing.T) {
	for i, name := range []string{"Unannounced", "Deaf"} {
		t.Run(name, func(t *testing.T) {
			var answers atomic.Int32
			client := dialAs(t, "", "", []string{shared(t).Addr()}, grpc.WithChainStreamInterceptor(
				alterAnswers("/etcdserverpb.Watch/Watch", func(any) error {
					if int(answers.Add(1)) == i+1 {
						<-t.Context().Done()
					}
					return nil
				})))
			d, other := open(t, client), open(t, dial(t, shared(t)))
			l := acquire(t, other, request(name, "holder"))
			w := livetest.Waiting(t, d, request(name, "waiter"))
			slack := livetest.Slack(t)
			began := time.Now()
			release(t, l)
			release(t, w.Get(t))
			if took := time.Since(began); took > 5*time.Second+slack() {
				t.Errorf("a watch that hangs cost a waiter %v", took)
			}
		})
	}
}

// TestLoginExpires has the login expire before each of many waits. etcd serves the watches that it
// has on a stream with an expired login, and refuses further ones there. All waiters are served.
func TestLoginExpires(t *testing.T) {
	t.Parallel()
	var login, refused, begun atomic.Int32
	refuse := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, conn, method, opts...)
		own := login.Load()
		return alteredStream{stream, func(m any) error {
			switch resp, ok := m.(*etcdserverpb.WatchResponse); {
			case !ok || !resp.Created:
			case own == login.Load():
				begun.Add(1)
			default:
				refused.Add(1)
				resp.Canceled, resp.WatchId, resp.CancelReason = true, -1, rpctypes.ErrGRPCInvalidAuthToken.Error()
			}
			return nil
		}}, err
	}
	d := open(t, dialAs(t, "", "", []string{shared(t).Addr()}, grpc.WithChainStreamInterceptor(refuse)))
	other := open(t, dial(t, shared(t)))
	var held []driver.Lease
	var waits []*livetest.Waiter
	for i := range int32(20) {
		login.Add(1)
		name := fmt.Sprint("login/", i)
		held = append(held, acquire(t, other, request(name, "holder")))
		waits = append(waits, livetest.Waiting(t, d, request(name, "waiter")))
		livetest.Await(t, "watch of "+name, func() error {
			if begun.Load() > i { // one more often, if an announcement was late
				return nil
			}
			return fmt.Errorf("%d watches have begun, and %d were refused", begun.Load(), refused.Load())
		})
	}
	for i, w := range waits {
		release(t, held[i])
		release(t, w.Get(t))
	}
}

// TestReadOutage cancels a waiter, and renews leases, while etcd can be reached and not be read: no
// error says that the lock is held or lost.
func TestReadOutage(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	k := intercept(client)
	d, other := open(t, client), open(t, dialShared(t))
	acquire(t, other, request("outage", "holder"))
	l := acquire(t, d, request("renewed", "a"))
	w := livetest.Waiting(t, d, request("outage", "waiter"))
	reads := make(chan struct{}, 1000)
	k.set(func(c call) error {
		if c.key == "outage/" {
			reads <- struct{}{}
		}
		return errDown
	})
	for range 2 { // the waiter knows of the first when the second begins
		<-reads
	}
	w.Cancel()
	<-w.Done()
	if !errors.Is(w.Err, driver.ErrUnavailable) || !errors.Is(w.Err, context.Canceled) {
		t.Errorf("Acquire = %v, want an error that matches ErrUnavailable and Canceled", w.Err)
	}
	for what, due := range map[string][]driver.Lease{"one lease": {l}, "all leases": nil} {
		if got := d.Renew(t.Context(), due)[0].Err; !errors.Is(got, driver.ErrUnavailable) {
			t.Errorf("Renew of %s = %v, want ErrUnavailable", what, got)
		}
	}
}

// TestNoHerd releases a lock that many wait for.
func TestNoHerd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	l := acquire(t, open(t, dial(t, server)), request("herd", "holder"))
	var taps []*interceptor
	var waits []*livetest.Waiter
	for i := range 5 {
		client := dial(t, server)
		taps = append(taps, intercept(client))
		waits = append(waits, livetest.Waiting(t, open(t, client), request("herd", string(rune('a'+i)))))
	}
	for _, k := range taps {
		k.set(nil)
	}
	release(t, l)
	first := waits[0].Get(t)
	for i, k := range taps {
		var got []string
		for _, c := range k.calls() {
			if c.key != "herd/" { // a read of the whole queue, because its watch was silent
				got = append(got, c.what)
			}
		}
		if i == 0 && !slices.Contains(got, "get") || i > 0 && len(got) > 0 { // a slow machine may look again
			t.Errorf("after a release, waiter %d called %q; want a look of the first, and none of the others", i, got)
		}
	}
	release(t, first)
	for _, w := range waits[1:] {
		release(t, w.Get(t))
	}
}
