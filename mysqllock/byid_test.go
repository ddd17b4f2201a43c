package mysqllock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// leaseKinds has what makes a request one of each kind.
var leaseKinds = map[string]func(*driver.Request){
	"Exclusive": func(*driver.Request) {},
	"Shared":    func(r *driver.Request) { r.Shared = true },
	"Slots":     func(r *driver.Request) { r.Slots = 1 },
}

// TestLeaseByID has a second driver renew, label and release leases that the first one has
// acquired. It knows their names and ids only.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	d, other := newDriver(t, dial(t, server.DSN())), newDriver(t, dial(t, server.DSN()))
	for kind, change := range leaseKinds {
		t.Run(kind, func(t *testing.T) {
			req := request("by id "+kind, "the id")
			change(&req)
			l := acquire(t, d, req)
			if got := l.(interface{ ID() string }).ID(); got != req.ID {
				t.Errorf("ID = %q, want %q", got, req.ID)
			}
			foreign := other.Lease(req.Name, req.ID, time.Hour)
			if g := foreign.Grant(); g != (driver.Grant{}) {
				t.Errorf("Grant of the other driver's lease = %+v, want nothing", g)
			}
			if err := foreign.SetHolder(testContext(t), driver.Holder{Label: "from elsewhere"}); err != nil {
				t.Errorf("SetLabel = %v", err)
			}
			if r := other.Renew(testContext(t), []driver.Lease{foreign})[0]; r.Err != nil || r.Start == (driver.Instant{}) {
				t.Errorf("Renew = %+v", r)
			}
			checkLease(t, d, req.Name, "from elsewhere", 50*time.Minute)
			if r := d.Renew(testContext(t), []driver.Lease{l})[0]; r.Err != nil { // for a minute
				t.Errorf("Renew of the first driver = %v", r.Err)
			}
			checkLease(t, d, req.Name, "from elsewhere", 50*time.Minute) // it is not shorter

			nobody := other.Lease(req.Name, "another id", time.Hour)
			mustHaveEnded(t, other, nobody)
			checkLease(t, d, req.Name, "from elsewhere", 50*time.Minute)

			release(t, foreign)
			mustHaveEnded(t, d, l)
			mustHaveEnded(t, other, other.Lease(req.Name, req.ID, time.Hour))
			req.ID = "the next"
			release(t, acquire(t, d, req))
		})
	}
}

// checkLease checks the only holder of a lock.
func checkLease(t *testing.T, d *mysqllock.Driver, name, label string, least time.Duration) {
	t.Helper()
	st, err := d.Status(testContext(t), name)
	if err != nil || len(st.Holders) != 1 || st.Holders[0].Holder.Label != label || st.Holders[0].Left < least {
		t.Errorf("Status = %+v, %v; want one holder, with the label %q and %v left", st, err, label, least)
	}
}

// mustHaveEnded checks that a lease is answered with ErrLost.
func mustHaveEnded(t *testing.T, d *mysqllock.Driver, l driver.Lease) {
	t.Helper()
	if err := d.Renew(testContext(t), []driver.Lease{l})[0].Err; !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
	if err := l.SetHolder(testContext(t), driver.Holder{Label: "of nobody"}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("SetLabel = %v, want ErrLost", err)
	}
	if err := l.Release(testContext(t)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
}

// TestMinHoldByID releases leases from another process, which does not know their MinHold.
func TestMinHoldByID(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	d, other := newDriver(t, dial(t, server.DSN())), newDriver(t, dial(t, server.DSN()))
	for kind, change := range leaseKinds {
		t.Run(kind, func(t *testing.T) {
			req := request("min hold "+kind, "a")
			req.MinHold = time.Hour
			change(&req)
			acquire(t, d, req)
			release(t, other.Lease(req.Name, req.ID, req.TTL))
			next := request(req.Name, "b")
			next.Slots = req.Slots
			mustBeHeld(t, d, next)
		})
	}
}
