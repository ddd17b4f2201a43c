package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// kindsOfLocks are changes of a request for each kind of lock.
var kindsOfLocks = map[string]func(driver.Request) driver.Request{
	"Exclusive": func(r driver.Request) driver.Request { return r },
	"Shared":    func(r driver.Request) driver.Request { r.Shared = true; return r },
	"Slots":     func(r driver.Request) driver.Request { r.Slots = 2; return r },
}

// TestLeaseByID has a process use leases that another one has acquired, by their ids.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	server := database(t)
	d, other := newDriver(t, dial(t, server.URL())), newDriver(t, dial(t, server.URL()))
	for kind, modify := range kindsOfLocks {
		t.Run(kind, func(t *testing.T) {
			name := "by id " + kind
			l := acquire(t, d, modify(request(name, "a")))
			same, none := other.Lease(name, "a", longTTL), other.Lease(name, "nobody", longTTL)
			if g := same.Grant(); g.Token != 0 || !g.Start.IsZero() {
				t.Errorf("Grant = %+v, want neither a token nor a start", g)
			}
			if id := l.ID(); id != "a" {
				t.Errorf("ID = %q, want that of the request", id)
			}

			got := other.Renew(t.Context(), []driver.Lease{none, same})
			if !errors.Is(got[0].Err, driver.ErrLost) || got[1].Err != nil || got[1].Start.IsZero() {
				t.Errorf("Renew of an unknown and a known id = %+v, want ErrLost and a start", got)
			}
			for what, err := range map[string]error{
				"SetHolder": none.SetHolder(t.Context(), driver.Holder{Label: "label"}), "Release": none.Release(t.Context()),
			} {
				if !errors.Is(err, driver.ErrLost) {
					t.Errorf("%s of an unknown id = %v, want ErrLost", what, err)
				}
			}
			if err := same.SetHolder(t.Context(), driver.Holder{Label: "from elsewhere"}); err != nil {
				t.Errorf("SetLabel = %v", err)
			}
			st, err := d.Status(t.Context(), name)
			if err != nil || len(st.Holders) != 1 || st.Holders[0].Holder.Label != "from elsewhere" ||
				st.Holders[0].Token != l.Grant().Token {
				t.Errorf("Status = %+v, %v; want the holder with the new label", st, err)
			}

			release(t, same)
			if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Release after a release by id = %v, want ErrLost", err)
			}
			for _, one := range []driver.Lease{l, other.Lease(name, "a", longTTL)} {
				if err := d.Renew(t.Context(), []driver.Lease{one})[0].Err; !errors.Is(err, driver.ErrLost) {
					t.Errorf("Renew after a release by id = %v, want ErrLost", err)
				}
			}
			release(t, acquire(t, other, noWait(name, "next")))
		})
	}
}

// TestRenewDoesNotShorten renews a lease for less time than it has left.
func TestRenewDoesNotShorten(t *testing.T) {
	t.Parallel()
	d := newDriver(t, dial(t, database(t).URL()))
	left := func() time.Duration {
		t.Helper()
		st, err := d.Status(t.Context(), "long")
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("Status = %+v, %v; want one holder", st, err)
		}
		return st.Holders[0].Left
	}
	req := request("long", "a")
	req.TTL = time.Hour
	acquire(t, d, req)
	for range 2 {
		if err := d.Renew(t.Context(), []driver.Lease{d.Lease("long", "a", time.Minute)})[0].Err; err != nil {
			t.Fatalf("Renew = %v", err)
		}
		if got := left(); got < 30*time.Minute {
			t.Errorf("an hour was granted, and %v are left after a renewal for a minute", got)
		}
	}
	if err := d.Renew(t.Context(), []driver.Lease{d.Lease("long", "a", 2*time.Hour)})[0].Err; err != nil {
		t.Fatalf("Renew = %v", err)
	}
	if got := left(); got < 90*time.Minute {
		t.Errorf("%v are left after a renewal for two hours", got)
	}
}
