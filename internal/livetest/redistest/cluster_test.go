package redistest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/redistest"
)

// wantRedirect checks that a node redirects a client to another node.
func wantRedirect(t *testing.T, n *redistest.Node, kind string, slot int, to *redistest.Node, args ...any) {
	t.Helper()
	answer, err := n.Do(args...)
	var no redistest.Error
	if want := fmt.Sprintf("%s %d %s", kind, slot, to.Addr()); !errors.As(err, &no) || string(no) != want {
		t.Errorf("%v = %v, %v, want %s", args, answer, err, want)
	}
}

func TestClusterMove(t *testing.T) {
	t.Parallel() // it waits for timers
	began := time.Now()
	c := redistest.Cluster(t, redistest.Password("hush"))
	t.Logf("started in %v", time.Since(began))
	if got := len(c.Addrs()); got != 6 {
		t.Errorf("%d nodes, want 6", got)
	}
	// The first and the last slot of each master.
	for _, slot := range []int{0, 5460, 5461, 10921, 10922, 16383} {
		if got, want := c.FirstMasterOf(slot), c.MasterOf(slot); got != want {
			t.Errorf("FirstMasterOf(%d) = %s, want %s", slot, got.Addr(), want.Addr())
		}
	}
	slot := c.SlotOf("{tag}")
	from, to := c.MasterOf(slot), c.MasterOtherThan(slot)
	if from == to {
		t.Fatalf("one master only: %s", to.Addr())
	}
	key := func(i int) string { return fmt.Sprintf("{tag}%d", i) }
	for i := range 250 { // more than MIGRATE moves at once
		from.Must("SET", key(i), i)
	}
	wantRedirect(t, to, "MOVED", slot, from, "GET", key(0))

	move := c.BeginMove(slot, to)
	if move.From != from || move.To != to {
		t.Errorf("move from %s to %s, want from %s to %s", move.From.Addr(), move.To.Addr(), from.Addr(), to.Addr())
	}
	if got := from.Must("GET", key(0)); got != "0" {
		t.Errorf("GET of a key that was not moved = %v, want 0", got)
	}
	wantRedirect(t, from, "ASK", slot, to, "GET", "{tag}new")
	wantRedirect(t, to, "MOVED", slot, from, "GET", "{tag}new")
	move.Keys()
	wantRedirect(t, from, "ASK", slot, to, "GET", key(0))

	began = time.Now()
	move.Finish()
	t.Logf("finished in %v", time.Since(began))
	wantRedirect(t, from, "MOVED", slot, to, "GET", key(0))
	for i := range 250 {
		if got := to.Must("GET", key(i)); got != fmt.Sprint(i) {
			t.Errorf("GET %s = %v, want %d", key(i), got, i)
		}
	}

	c.MoveSlot(slot, from)
	if got := from.Must("GET", key(249)); got != "249" || c.MasterOf(slot) != from {
		t.Errorf("GET after the move back = %v, want 249", got)
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel() // it waits for timers
	began := time.Now()
	c := redistest.Cluster(t)
	t.Logf("started in %v", time.Since(began))
	const key = "key"
	slot := c.SlotOf(key)
	tests := []struct {
		name string
		fail func() *redistest.Node // returns the new master
		mend func(old *redistest.Node)
	}{
		{
			name: "Kill",
			fail: func() *redistest.Node { return c.WaitForFailover(slot, c.KillMasterOf(slot)) },
			mend: func(old *redistest.Node) { old.Restart() },
		},
		{
			name: "Hang",
			fail: func() *redistest.Node { return c.WaitForFailover(slot, c.HangMasterOf(slot)) },
			mend: func(old *redistest.Node) { old.Resume() },
		},
		{
			name: "Order",
			fail: func() *redistest.Node { return c.Failover(slot) },
			mend: func(*redistest.Node) {},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			old := c.MasterOf(slot)
			old.Must("SET", key, tt.name)
			c.WaitUntilWell()
			began := time.Now()
			master := tt.fail()
			t.Logf("failover after %v", time.Since(began))
			if master == old || c.MasterOf(slot) != master {
				t.Errorf("master after the failover of %s is %s, and %s when asked again", old.Addr(), master.Addr(),
					c.MasterOf(slot).Addr())
			}
			if got := master.Must("GET", key); got != tt.name {
				t.Errorf("GET from the new master = %v, want %s", got, tt.name)
			}
			began = time.Now()
			tt.mend(old)
			c.WaitUntilWell()
			t.Logf("well after %v", time.Since(began))
			if role, _ := old.Must("INFO", "replication").(string); !strings.Contains(role, "role:slave") {
				t.Errorf("the old master is no replica: %s", role)
			}
		})
	}
}
