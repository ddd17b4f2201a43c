package zklock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/zklock"
)

// TestOtherKinds has things on the path of a lock that are no locks. Each request fails with
// ErrKind, Status says what is there, and Break leaves it alone. A name is free again when the
// thing has gone.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	server := shared(t)
	conn := newTree(t, server.Addr())
	d := newDriver(t, []string{server.Addr()})
	release(t, acquire(t, d, request("root", "a"))) // makes the root
	tests := []struct {
		name     string
		data     string   // of the folder
		children []string // and their flags
		flags    int32
		says     string
		held     bool // it keeps out, and is no other kind
		free     bool // it takes no part
	}{
		{name: "CuratorLocks", children: []string{"locks"}, says: "semaphore of Curator"},
		{name: "CuratorBoth", children: []string{"locks", "leases"}, says: "semaphore of Curator"},
		{name: "KazooFree", data: "3", says: "semaphore of kazoo"},
		{name: "KazooLease", data: "1", children: []string{"87e83f711a5a446ca83b209ce2f88e4a"}, flags: zk.FlagEphemeral,
			says: "semaphore of kazoo"},
		{name: "KazooLeaseInOtherFolder", children: []string{"87e83f711a5a446ca83b201234567890"}, flags: zk.FlagEphemeral,
			says: "semaphore of kazoo"},
		{name: "Persistent", children: []string{"item-0000000000"}, says: "belongs to no session"},
		{name: "KazooLock", children: []string{"87e83f711a5a446ca83b209ce2f88e4a__lock__0000000001"}, flags: zk.FlagEphemeral,
			held: true},
		{name: "OtherData", data: "made by hand", free: true},
		{name: "OtherChild", children: []string{"config"}, free: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree, folder := tree{conn.Conn, t}, "/snib/"+tt.name
			create := func(path, data string, flags int32) {
				t.Helper()
				if _, err := tree.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
					t.Fatal(err)
				}
			}
			create(folder, tt.data, zk.FlagPersistent)
			for _, child := range tt.children {
				create(folder+"/"+child, "", tt.flags)
			}
			for kind, change := range map[string]func(*driver.Request){
				"NoWait": func(r *driver.Request) { r.NoWait = true },
				"Waits":  func(*driver.Request) {},
				"Shared": func(r *driver.Request) { r.Shared = true },
				"Slots":  func(r *driver.Request) { r.Slots = 2 },
			} {
				if tt.held && kind != "NoWait" {
					continue
				}
				req := request(tt.name, "owner")
				change(&req)
				l, err := d.Acquire(t.Context(), req)
				switch {
				case tt.free && err == nil:
					release(t, l)
				case tt.held && errors.Is(err, driver.ErrHeld):
				case tt.says == "" || !errors.Is(err, driver.ErrKind):
					t.Errorf("%s: Acquire = %v", kind, err)
				case kind != "Slots" && !strings.Contains(err.Error(), tt.says):
					t.Errorf("%s: Acquire = %v, want that it is %q", kind, err, tt.says)
				}
			}
			if got := tree.awaitChildren(folder, len(tt.children)); tt.says == "" && !tt.held {
				return
			} else if len(got) != len(tt.children) {
				t.Errorf("after that, the folder has %q", got)
			}
			st, err := d.Status(t.Context(), tt.name)
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("Status = %+v, %v; want one holder", st, err)
			}
			h := st.Holders[0]
			if !tt.held && (h.ID != "" || h.Left != driver.NoExpiry || !strings.Contains(h.Foreign, tt.says)) {
				t.Errorf("Status has the holder %+v, want that it is %q, without an id or an end", h, tt.says)
			}
			if !tt.held {
				if err := d.Break(t.Context(), tt.name, h.ID); !errors.Is(err, driver.ErrLost) {
					t.Errorf("Break = %v, want ErrLost", err)
				}
				tree.awaitChildren(folder, len(tt.children))
			}
			for _, child := range append(tt.children, "") {
				if err := tree.Delete(strings.TrimSuffix(folder+"/"+child, "/"), -1); err != nil {
					t.Fatal(err)
				}
			}
			release(t, acquire(t, d, request(tt.name, "again")))
		})
	}
}

// TestPersistentAhead has a node that belongs to no session between a holder and a waiter.
func TestPersistentAhead(t *testing.T) {
	t.Parallel()
	server := shared(t)
	tree := newTree(t, server.Addr())
	d := newDriver(t, []string{server.Addr()})
	l := acquire(t, d, request("persistentAhead", "holder"))
	if _, err := tree.Create("/snib/persistentAhead/item-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Acquire(t.Context(), request("persistentAhead", "waiter")); !errors.Is(err, driver.ErrKind) {
		t.Errorf("Acquire behind a node that belongs to no session = %v, want ErrKind", err)
	}
	tree.awaitChildren("/snib/persistentAhead", 2)
	release(t, l)
}

// TestLiteralPath checks that ZooKeeper takes a literal name, and that all calls use it.
func TestLiteralPath(t *testing.T) {
	t.Parallel()
	server := shared(t)
	tree := newTree(t, server.Addr())
	d := newDriver(t, []string{server.Addr()}, zklock.LiteralNames())
	const name = "große 50% 日本"
	l := acquire(t, d, request(name, "a"))
	if _, stat, err := tree.Exists("/snib/" + name); err != nil || stat.NumChildren != 1 {
		t.Errorf("Exists = %+v, %v; want the node of the holder", stat, err)
	}
	st, err := d.Status(t.Context(), name)
	if err != nil || len(st.Holders) != 1 {
		t.Errorf("Status = %+v, %v; want a holder", st, err)
	}
	listed := 0
	if err := d.List(t.Context(), "große", func(st driver.Status) bool { listed++; return st.Name == name }); err != nil ||
		listed != 1 {
		t.Errorf("List yields %d locks, %v; want one", listed, err)
	}
	if err := d.Break(t.Context(), name, l.ID()); err != nil {
		t.Errorf("Break = %v", err)
	}
	if _, err := d.Acquire(t.Context(), request("a/b", "a")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Acquire of a name with a slash = %v, want ErrInvalid", err)
	}
	if _, err := d.Status(t.Context(), "a/b"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Status of a name with a slash = %v, want ErrInvalid", err)
	}
	if err := d.Break(t.Context(), "a/b", "a"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Break of a name with a slash = %v, want ErrInvalid", err)
	}
}
