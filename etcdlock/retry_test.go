package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// TestRetryTimeout checks how long an attempt continues while etcd can't be reached.
func TestRetryTimeout(t *testing.T) {
	down := &reachError{reason: "no answer", noAnswer: true}
	tests := []struct {
		name    string
		queued  bool
		round   time.Duration // duration of the round that failed first
		failing time.Duration // for which keep-alives have failed then
		outage  time.Duration // from then on
		want    bool
	}{
		{"Queued", true, 0, 0, driver.RetryTimeout - time.Second, true},
		{"QueuedForLong", true, time.Hour, 0, driver.RetryTimeout - time.Second, true},
		{"QueuedLonger", true, 0, 0, driver.RetryTimeout + time.Second, false},
		{"QueuedWhileFailing", true, time.Hour, 10 * time.Second, driver.RetryTimeout - 11*time.Second, true},
		{"QueuedWhileFailingLonger", true, time.Hour, 10 * time.Second, driver.RetryTimeout - 9*time.Second, false},
		{"NotQueued", false, callTimeout, 0, unqueuedRetryTimeout - callTimeout - time.Second, true},
		{"NotQueuedLonger", false, callTimeout, 0, unqueuedRetryTimeout - callTimeout + time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				// In a long round, the process was stopped.
				a := &attempt{wasQueued: tt.queued, s: &session{ttl: 5 * time.Minute, start: driver.Now()}}
				time.Sleep(max(tt.round-tt.failing, 0))
				if tt.failing > 0 {
					a.s.recordFailure()
					time.Sleep(tt.failing)
					a.s.recordFailure()
				}
				a.shouldRetry(down, began)
				began = time.Now()
				time.Sleep(tt.outage)
				if got := a.shouldRetry(down, began); got != tt.want {
					t.Errorf("shouldRetry after %v = %v, want %v", tt.outage, got, tt.want)
				}
			})
		})
	}
}

// TestPingGivenUp cancels a ping, which says nothing of etcd then.
func TestPingGivenUp(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(driver.ErrClosed)
	if err := (&Driver{client: client}).ping(ctx, time.Hour); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("ping that was given up = %v, want the cause of its context", err)
	}
}

// TestOutage checks when a waiter that gives up reports an outage: if its queue can't be watched or
// read, for whatever reason, nobody is known to hold the lock.
func TestOutage(t *testing.T) {
	for err, want := range map[error]error{errWatchEnded: nil, rpctypes.ErrNoLeader: rpctypes.ErrNoLeader} {
		if got := (&watchedQueue{err: err}).outage(); !errors.Is(got, want) {
			t.Errorf("outage after %v = %v, want %v", err, got, want)
		}
	}
}

// TestSilence checks since when a session counts an outage: since the first keep-alive that failed
// after the last answer. TestRetryTimeout has what does not count.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{ttl: 5 * time.Minute, start: driver.Now(), ctx: t.Context()}
		s.recordFailure()
		for answer, want := range []time.Duration{time.Minute, 0} {
			time.Sleep(time.Minute)
			_ = s.sendKeepAlive(&keepAliveStream{answers: answer > 0})
			if got := time.Since(s.failingSince()); got != want {
				t.Errorf("keep-alives have failed for %v, want %v", got, want)
			}
		}
	})
}

// A keepAliveStream answers keep-alives, or fails.
type keepAliveStream struct {
	etcdserverpb.Lease_LeaseKeepAliveClient
	answers bool
}

func (k *keepAliveStream) Send(*etcdserverpb.LeaseKeepAliveRequest) error { return nil }

func (k *keepAliveStream) Recv() (*etcdserverpb.LeaseKeepAliveResponse, error) {
	if !k.answers {
		return nil, errors.New("lost")
	}
	return &etcdserverpb.LeaseKeepAliveResponse{TTL: 300}, nil
}

// TestCleanUp checks which keys are deleted again: one that stays forbidden does not keep another
// from being deleted, and is not forgotten. However many there are, all are deleted at once. A put
// that was denied needs no cleanup.
func TestCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Driver{client: &clientv3.Client{KV: &fakeKV{commit: deny}}, life: driverkit.NewLifecycle()}
		s := &session{d: d, ctx: t.Context(), pendingCleanup: map[string]leftover{}}
		a := &attempt{d: d, s: s, key: "denied/put"}
		if _, err := a.put(t.Context()); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Fatalf("put = %v, want a denial", err)
		}
		a.deleteKey()
		s.addCleanup("denied/key")
		for i := range 2 * batch {
			s.addCleanup(fmt.Sprint("free/", i))
		}
		for i, want := range []int{2*batch + 1, 1} { // the second is after cleanupPeriod
			s.cleanUp()
			if _, denied := s.pendingCleanup["denied/key"]; !denied || len(s.pendingCleanup) != want {
				t.Errorf("after cleanup %d, these keys are pending: %v; want %d with the denied one", i+1,
					slices.Sorted(maps.Keys(s.pendingCleanup)), want)
			}
			time.Sleep(cleanupPeriod + time.Second)
		}
	})
}

// TestBatches checks keys at a server that allows 16 operations in a transaction, at one that
// forbids a key, and at one that does not answer (any more), which is not asked for each batch.
func TestBatches(t *testing.T) {
	for _, tt := range []struct {
		name         string
		answer       func([]clientv3.Op) error
		firsts       int
		first, other error // the answers for so many keys, and for the others; fakeKV says that all are gone
		most         int   // transactions
	}{
		{"FewOperations", func(ops []clientv3.Op) error {
			if len(ops) > 16 {
				return rpctypes.ErrTooManyOps
			}
			return nil
		}, 1, errKeyGone, errKeyGone, 100},
		{"Denied", deny, 1, rpctypes.ErrPermissionDenied, errKeyGone, 100},
		{"Outage", func([]clientv3.Op) error { return rpctypes.ErrNoLeader }, 1, rpctypes.ErrNoLeader, rpctypes.ErrNoLeader, 1},
		{"OutageWithinBatch", func(ops []clientv3.Op) error {
			switch {
			case len(ops) == batch:
				return rpctypes.ErrPermissionDenied
			case string(ops[0].KeyBytes()) == "denied/key":
				return nil
			}
			return rpctypes.ErrNoLeader
		}, batch / 2, errKeyGone, rpctypes.ErrNoLeader, 3},
	} {
		sent := 0
		kv := &fakeKV{commit: func(ops []clientv3.Op) error { sent++; return tt.answer(ops) }}
		d := &Driver{life: driverkit.NewLifecycle(), client: &clientv3.Client{KV: kv}}
		leases := []*lease{{key: "denied/key"}}
		for i := range 3 * batch {
			leases = append(leases, &lease{key: fmt.Sprint("key/", i)})
		}
		failed := d.checkKeys(t.Context(), leases)
		for i, l := range leases {
			want := tt.other
			if i < tt.firsts {
				want = tt.first
			}
			if !errors.Is(failed[l], want) {
				t.Fatalf("%s: the check of %s = %v, want %v", tt.name, l.key, failed[l], want)
			}
		}
		if sent > tt.most {
			t.Errorf("%s: %d keys took %d transactions, want %d at most", tt.name, len(leases), sent, tt.most)
		}
	}
}

// A fakeKV executes no transaction, and answers them with commit. It denies other deletions.
type fakeKV struct {
	clientv3.KV
	commit func([]clientv3.Op) error
	ops    []clientv3.Op
}

func (k *fakeKV) Txn(context.Context) clientv3.Txn     { return &fakeKV{commit: k.commit} }
func (k *fakeKV) If(...clientv3.Cmp) clientv3.Txn      { return k }
func (k *fakeKV) Then(ops ...clientv3.Op) clientv3.Txn { k.ops = ops; return k }
func (k *fakeKV) Else(...clientv3.Op) clientv3.Txn     { return k }

func (k *fakeKV) Commit() (*clientv3.TxnResponse, error) {
	empty := &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{
		ResponseRange: &etcdserverpb.RangeResponse{}}}
	return &clientv3.TxnResponse{Responses: slices.Repeat([]*etcdserverpb.ResponseOp{empty}, len(k.ops))}, k.commit(k.ops)
}

func (k *fakeKV) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return nil, rpctypes.ErrPermissionDenied
}

// deny denies to use keys below "denied/".
func deny(ops []clientv3.Op) error {
	for _, op := range ops {
		if strings.HasPrefix(string(op.KeyBytes()), "denied/") {
			return rpctypes.ErrPermissionDenied
		}
	}
	return nil
}

// TestRecordSince has the renewals of many leases write, one after the other, since when they are
// held. After an outage, the next renewal tries again.
func TestRecordSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writing, wrote, answer := 0, 0, rpctypes.ErrNoLeader
		kv := &fakeKV{commit: func([]clientv3.Op) error {
			if writing++; writing > 1 {
				t.Error("two writes are under way")
			}
			time.Sleep(time.Millisecond)
			writing--
			wrote++
			return answer
		}}
		d := &Driver{client: &clientv3.Client{KV: kv}, life: driverkit.NewLifecycle()}
		var leases []*lease
		for range 100 {
			l := &lease{d: d, s: &session{}, writeSem: make(chan struct{}, 1)}
			l.unrecorded.Store(true)
			leases = append(leases, l)
		}
		for round, want := range []int{100, 200, 200} {
			d.recordSince(slices.Clone(leases))
			time.Sleep(time.Second)
			synctest.Wait()
			if wrote != want {
				t.Errorf("after renewal %d: %d writes, want %d", round+1, wrote, want)
			}
			answer = nil
		}
	})
}

// TestReleaseAtDeadline ends the session while a release gets no answer. The hold was valid when
// the release began, so it is not said to be lost: the caller's work was alone.
func TestReleaseAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{told: make(chan struct{}), leases: map[*lease]struct{}{}, keyWatches: newKeyWatches()}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		s.d = &Driver{client: &clientv3.Client{KV: &fakeKV{commit: func([]clientv3.Op) error {
			s.terminate(fmt.Errorf("%w: its session is over", driver.ErrLost))
			return rpctypes.ErrNoLeader
		}}}}
		lost := make(chan error, 1)
		req := driver.Request{OnLost: func(err error) { lost <- err }}
		l := &lease{d: s.d, s: s, req: req, releaseSem: make(chan struct{}, 1)}
		if err := s.register(l); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Release(ctx); err == nil || errors.Is(err, driver.ErrLost) {
			t.Errorf("Release without an answer = %v, want another error than ErrLost", err)
		}
		if len(lost) > 0 {
			t.Errorf("a hold that is being released is reported as lost: %v", <-lost)
		}
	})
}
