package etcdlock_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// watchCount returns how many watches a server has.
func watchCount(t *testing.T, server *etcdtest.Server) (n int) {
	t.Helper()
	answer, err := http.Get("http://" + server.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^etcd_debugging_mvcc_watcher_total (\d+)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the server does not say how many watches it has")
	}
	if _, err := fmt.Sscan(string(found[1]), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOneWatch has many waiters of one driver: they share a watch. The holder watches its own
// key.
func TestOneWatch(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	l := acquire(t, open(t, client), request("watched", "holder"))
	d := open(t, client)
	var waits []*livetest.Waiter
	for i := range 20 {
		waits = append(waits, livetest.Waiting(t, d, request("watched", fmt.Sprint("waiter ", i))))
	}
	livetest.Await(t, "watches of the waiters, and of the holder's key", func() error {
		if got := watchCount(t, server); got != 2 {
			return fmt.Errorf("with 20 waiters in one process etcd has %d watches", got)
		}
		return nil
	})
	release(t, l)
	for _, w := range waits {
		release(t, w.Get(t))
	}
}

// TestKeys checks the wire format.
func TestKeys(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	d := open(t, client)
	l := acquire(t, d, request("wire/format", "me"))
	got, err := client.Get(t.Context(), "wire/format/", clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("Get = %v, %v", got, err)
	}
	kv := got.Kvs[0]
	if want := fmt.Sprintf("wire/format/%x.", kv.Lease); !strings.HasPrefix(string(kv.Key), want) {
		t.Errorf("the key is %q, want %q and an id", kv.Key, want)
	}
	if want := fmt.Sprintf(`{"snib":1,"id":%q,`, l.ID()); !strings.HasPrefix(string(kv.Value), want) {
		t.Errorf("the value is %q, want it to begin with %q", kv.Value, want)
	}
	if token := l.Grant().Token; token != uint64(kv.CreateRevision)<<16 {
		t.Errorf("Token = %d, want the create revision %d, shifted", token, kv.CreateRevision)
	}
	release(t, l)
}

// TestListPages lists more keys than List reads at a time.
func TestListPages(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	session, err := client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	const many = 2100
	for from := 0; from < many; from += 100 {
		var ops []clientv3.Op
		for i := from; i < from+100; i++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("page%d/%x", i, session.ID), "", clientv3.WithLease(session.ID)))
		}
		if _, err := client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	err = open(t, client).List(t.Context(), "page", func(st driver.Status) bool {
		if seen[st.Name] || len(st.Holders) != 1 {
			t.Errorf("List shows %+v; want each lock once, with its holder", st)
		}
		seen[st.Name] = true
		return true
	})
	if err != nil || len(seen) != many {
		t.Errorf("List shows %d locks, %v; want %d", len(seen), err, many)
	}
}

// TestIsOwner writes data under a lock, in one transaction.
func TestIsOwner(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	d, other := open(t, client), open(t, client)
	l := acquire(t, d, blockRequest("owned", "a", 10))
	write := func(d *etcdlock.Driver, token uint64) bool {
		t.Helper()
		answer, err := client.Txn(t.Context()).If(d.IsOwner("owned", token)).Then(clientv3.OpPut("data", "value")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return answer.Succeeded
	}
	token := l.Grant().Token
	if !write(d, token) || !write(d, token+9) {
		t.Errorf("a transaction of the holder fails")
	}
	if write(d, token+10) || write(other, token) {
		t.Errorf("a transaction for another hold succeeds")
	}
	stale := d.IsOwner("owned", token)
	server.Ctl("del", "--prefix", "owned/")
	next := acquire(t, other, request("owned", "b"))
	answer, err := client.Txn(t.Context()).If(stale).Then(clientv3.OpPut("data", "stale")).Commit()
	if err != nil || answer.Succeeded {
		t.Errorf("a transaction of a holder that has lost its key: %v, %v; want it to fail", answer, err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release of a hold that has lost its key = %v, want ErrLost", err)
	}
	checkHeld(t, d, "owned", "after a late release")
	release(t, next)
}

// TestBadInput makes invalid or hopeless requests. The errors come soon, and say what is wrong.
func TestBadInput(t *testing.T) {
	locked := etcdtest.Start(t)
	locked.RequireLogin()
	anonymous := dialAs(t, "", "", []string{locked.Addr()})
	hung := etcdtest.Cluster(t, 3)
	minority := dial(t, hung.Members[0])
	for _, m := range hung.Members[1:] {
		m.Kill()
	}
	tests := []struct {
		name string
		d    *etcdlock.Driver
		req  driver.Request
		want error
		says []string
	}{
		{"NoTTL", newDriver(t, anonymous), driver.Request{Name: "a", ID: "b"}, driver.ErrInvalid, []string{"TTL"}},
		{"NoLogin", newDriver(t, anonymous), request("a", "b"), rpctypes.ErrUserEmpty, []string{"user", "password"}},
		{"NoMajority", newDriver(t, minority), request("a", "b"), driver.ErrUnavailable, []string{"no answer", "majority"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer tt.d.Close()
			_, err := acquireSoon(t, tt.d, tt.req)
			if !errors.Is(err, tt.want) || !containsAll(err.Error(), tt.says...) {
				t.Errorf("Acquire = %v; want %v with %q", err, tt.want, tt.says)
			}
		})
	}
}

// TestOtherKindBehind has a key of another kind behind the holder's, as a request has until it
// notices that it has to leave. Those behind it do not fail. They wait until it has left.
func TestOtherKindBehind(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	d := open(t, client)
	l := acquire(t, d, request("mixed", "holder"))
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	leaving := fmt.Sprintf("mixed/%x.leaving", lease.ID)
	if _, err := client.Put(t.Context(), leaving, `{"snib":1,"id":"leaving","slots":2}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	w := livetest.Waiting(t, d, request("mixed", "waiter"))
	checkHeld(t, d, "mixed", "behind a key of another kind")
	w.Running(t, "behind a key of another kind")
	if _, err := client.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	release(t, l)
	release(t, w.Get(t))
}
