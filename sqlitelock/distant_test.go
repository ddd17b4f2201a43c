//go:build linux

package sqlitelock

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestDistantEnd writes absurd times into the row of a lock. The lock is held, is shown, and can be
// broken; the waiter behind it then gets it at once. Other locks are free.
func TestDistantEnd(t *testing.T) {
	slack := livetest.Slack(t)
	for _, change := range []string{
		`UPDATE leases SET deadline = 9223372036854775807`,
		`UPDATE leases SET deadline = 9223372036854775807, since = 9223372036854775807`,
		`UPDATE leases SET deadline = 9223372036854775807, since = -9223372036854775808`,
	} {
		t.Run(change, func(t *testing.T) {
			path := newPath(t)
			holder, d := open(t, path), open(t, path)
			held := acquire(t, holder, request("holder"))
			other, err := connect(path, func() bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			defer other.close()
			if err := other.exec(change); err != nil {
				t.Fatal(err)
			}
			if _, err := try(d, request("another")); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("Acquire = %v, want ErrHeld", err)
			}
			elsewhere := request("another")
			elsewhere.Name = "another name"
			acquire(t, d, elsewhere)
			waiting := livetest.Waiting(t, d, request("waiter"))
			list := map[string]driver.Status{}
			if err := d.List(context.Background(), "",
				func(st driver.Status) bool { list[st.Name] = st; return true }); err != nil {
				t.Fatal(err)
			}
			st := list[request("").Name]
			if len(list) != 2 || len(st.Holders) != 1 || len(st.Waiters) != 1 {
				t.Fatalf("List = %+v, want a holder and a waiter of one lock, and a holder of the other", list)
			}
			if h := st.Holders[0]; h.Left < math.MaxInt64/2 || h.Held < 0 {
				t.Errorf("held for %v, left %v; want the time left that was written", h.Held, h.Left)
			}
			waiting.Running(t, "before the hold was broken")
			began := time.Now()
			if err := d.Break(context.Background(), st.Name, held.ID()); err != nil {
				t.Fatalf("Break = %v", err)
			}
			waiting.Get(t)
			if took := time.Since(began); took > 5*time.Second+slack() { // milliseconds on an idle machine
				t.Errorf("the waiter got the lock %v after the hold was broken", took)
			}
		})
	}
}
