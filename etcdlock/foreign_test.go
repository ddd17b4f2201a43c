package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestOtherKinds has keys that are no locks where a lock is. Each request fails with ErrKind,
// Status says what is there, and Break leaves it alone.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	d := open(t, client)
	lease, err := client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	withLease := clientv3.WithLease(lease.ID)
	tests := []struct {
		name, key string
		opts      []clientv3.OpOption
		says      string // "" if the lock is free
		endless   bool
	}{
		{name: "/locks/one-key", key: "/locks/one-key", opts: []clientv3.OpOption{withLease},
			says: `the key "/locks/one-key"`},
		{name: "data", key: "data", says: ""}, // what the lock protects may have its name
		{name: "below", key: "below/item", says: `the key "below/item"`, endless: true},
		{name: "deeper", key: "deeper/x/item", says: ""},
		{name: "longer", key: "longer2", opts: []clientv3.OpOption{withLease}, says: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := client.Put(t.Context(), tt.key, "value", tt.opts...); err != nil {
				t.Fatal(err)
			}
			for kind, change := range map[string]func(*driver.Request){
				"NoWait": func(r *driver.Request) { r.NoWait = true },
				"Waits":  func(*driver.Request) {},
				"Shared": func(r *driver.Request) { r.Shared = true },
				"Slots":  func(r *driver.Request) { r.Slots = 2 },
			} {
				req := request(tt.name, "owner")
				change(&req)
				l, err := acquireSoon(t, d, req)
				if tt.says == "" && err == nil {
					release(t, l)
				} else if tt.says == "" || !errors.Is(err, driver.ErrKind) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: Acquire = %v, want ErrKind that says %q", kind, err, tt.says)
				}
			}
			st, err := d.Status(t.Context(), tt.name)
			if err != nil || len(st.Holders) != min(1, len(tt.says)) {
				t.Fatalf("Status = %+v, %v; want a holder only for what is no lock", st, err)
			}
			if tt.says == "" {
				return
			}
			h := st.Holders[0]
			if h.ID != "" || !strings.Contains(h.Foreign, tt.says) || h.Left <= 0 || (h.Left == driver.NoExpiry) != tt.endless {
				t.Errorf("Status has the holder %+v, want one without an id that says %q", h, tt.says)
			}
			if err := d.Break(t.Context(), tt.name, h.ID); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Break = %v, want ErrLost", err)
			}
			if got, err := client.Delete(t.Context(), tt.key); err != nil || got.Deleted != 1 {
				t.Errorf("Delete = %+v, %v; want one key: Break must not delete it", got, err)
			}
			release(t, acquire(t, d, request(tt.name, "again")))
		})
	}
}

// acquireSoon sends a request that must be answered soon.
func acquireSoon(t *testing.T, d driver.Driver, req driver.Request) (driver.Lease, error) {
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	return d.Acquire(ctx, req)
}

// TestOneKeyWhileHeld has a client of python-etcd3 take the name of a lock that we hold: it does
// not look at our keys. A waiter of ours whose driver watches the queue notices that.
func TestOneKeyWhileHeld(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	holder, d := open(t, client), open(t, client)
	l := acquire(t, holder, request("job", "holder"))
	first := livetest.Waiting(t, d, request("job", "first"))
	lease, err := client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "job", "value", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := acquireSoon(t, d, request("job", "second")); !errors.Is(err, driver.ErrKind) {
		t.Errorf("Acquire of a lock that we and a stranger have = %v, want ErrKind", err)
	}
	livetest.Await(t, "end of the request that was refused", func() error {
		if got := keys(t, client, "job"); len(got) != 2 {
			return errors.New(strings.Join(got, " "))
		}
		return nil
	})
	release(t, l)
	release(t, first.Get(t))
}
