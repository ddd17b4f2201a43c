package etcdlock_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestHeldAfterSetHolder has etcd answer late: a hold whose label changes is shown as held for as
// long as before.
func TestHeldAfterSetHolder(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	client.KV = lateKV{client.KV}
	l := acquire(t, open(t, client), request("late", "a"))
	other := open(t, dial(t, server))
	held := func() time.Duration {
		st, err := other.Status(t.Context(), "late")
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("Status = %+v, %v, want one holder", st, err)
		}
		return st.Holders[0].Held
	}
	before := held()
	if err := l.SetHolder(t.Context(), driver.Holder{Label: "another"}); err != nil {
		t.Fatalf("SetHolder = %v", err)
	}
	if after := held(); after < before {
		t.Errorf("held for %v before SetHolder, and for %v after it", before, after)
	}
	release(t, l)
}

// A lateKV returns the answer to a transaction a while later than it came.
type lateKV struct{ clientv3.KV }

func (k lateKV) Txn(ctx context.Context) clientv3.Txn { return lateTxn{k.KV.Txn(ctx)} }

type lateTxn struct{ clientv3.Txn }

func (x lateTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { return lateTxn{x.Txn.If(cs...)} }
func (x lateTxn) Then(ops ...clientv3.Op) clientv3.Txn { return lateTxn{x.Txn.Then(ops...)} }
func (x lateTxn) Else(ops ...clientv3.Op) clientv3.Txn { return lateTxn{x.Txn.Else(ops...)} }
func (x lateTxn) Commit() (*clientv3.TxnResponse, error) {
	answer, err := x.Txn.Commit()
	<-time.After(300 * time.Millisecond)
	return answer, err
}
