package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestLeaseByID renews, labels and releases leases that another process has acquired, by their
// names and ids.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	long := redislock.GraceFloor(time.Minute) // so that a renewal for longer is not listed as a long lease
	d, other := open(t, at(node.Addr()), long), open(t, at(node.Addr()), long)
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			name := "job " + mode.name
			first := take(t, d, mode.as(request(name, "id", floor)))
			none := other.Lease(name, "nobody's", time.Minute)
			lost := func(l driver.Lease, when string) {
				t.Helper()
				if err := renew(t, other, l); !errors.Is(err, driver.ErrLost) {
					t.Errorf("%s: Renew = %v, want ErrLost", when, err)
				}
				if err := l.SetHolder(t.Context(), driver.Holder{Label: "a label"}); !errors.Is(err, driver.ErrLost) {
					t.Errorf("%s: SetLabel = %v, want ErrLost", when, err)
				}
				if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
					t.Errorf("%s: Release = %v, want ErrLost", when, err)
				}
			}
			lost(none, "an id that holds nothing")
			second := other.Lease(name, "id", time.Minute)
			if id := second.ID(); id != "id" {
				t.Errorf("ID = %q", id)
			}
			if g := second.Grant(); g != (driver.Grant{}) {
				t.Errorf("Grant = %+v, want none", g)
			}
			if err := renew(t, other, second); err != nil {
				t.Errorf("Renew = %v", err)
			}
			if err := second.SetHolder(t.Context(), driver.Holder{Label: "by id"}); err != nil {
				t.Errorf("SetLabel = %v", err)
			}
			st := status(t, d, name)
			if len(st.Holders) != 1 || st.Holders[0].Token != token(first) || st.Holders[0].Holder.Label != "by id" ||
				st.Holders[0].Left < time.Minute/2 {
				t.Errorf("Status = %+v, want the label and a lease of a minute", st)
			}
			free(t, second)
			lost(other.Lease(name, "id", floor), "after the release, in the other process")
			if err := renew(t, d, first); !errors.Is(err, driver.ErrLost) {
				t.Errorf("after the release by another process, Renew = %v, want ErrLost", err)
			}
			if err := first.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
				t.Errorf("after the release by another process, Release = %v, want ErrLost", err)
			}
		})
	}
	nothingLeft(t, node)
}

// TestUntoldLease checks that the driver remembers no lease whose holder wants to be told nothing,
// as those of a lock service: it may lapse, or be released elsewhere.
func TestUntoldLease(t *testing.T) {
	t.Parallel()
	d := open(t, at(used(t, redistest.Single(t)).Addr()))
	req := request("job", "id", floor)
	req.OnLost, req.OnWanted = nil, nil
	take(t, d, req)
	if redislock.HasLeases(d) {
		t.Error("the driver remembers a lease that nobody wants to be told of")
	}
	free(t, d.Lease("job", "id", floor))
	req.ID, req.OnLost = "told", func(error) {}
	l := take(t, d, req)
	if !redislock.HasLeases(d) {
		t.Error("the driver does not remember a lease whose loss it must tell")
	}
	free(t, l)
}
