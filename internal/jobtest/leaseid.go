package jobtest

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// A LeaseNamer is a driver that names leases by their ids.
type LeaseNamer interface {
	driver.Driver
	driver.Inspector
	Lease(name, id string, ttl time.Duration) driver.Lease
}

// LeaseByID has one driver renew, label and release leases that another one has acquired.
func LeaseByID(t *testing.T, d1, d2 LeaseNamer) {
	for name, req := range map[string]driver.Request{
		"exclusive": {}, "shared": {Shared: true}, "semaphore": {Slots: 2}, "detached": {Detached: true},
	} {
		t.Run(name, func(t *testing.T) {
			req.Name, req.TTL = name, time.Minute
			useByID(t, d1, d2, req)
		})
	}
	t.Run("min hold", func(t *testing.T) { minHoldByID(t, d1, d2) })
}

func useByID(t *testing.T, d1, d2 LeaseNamer, req driver.Request) {
	const long = time.Hour
	two := req
	req.Owner, two.Owner = "one", "two"
	own := Acquire(t, d1, req)
	named := d2.Lease(req.Name, req.Owner, long)
	if got := named.Grant(); got != (driver.Grant{}) {
		t.Errorf("Grant = %+v, want none", got)
	}
	for _, l := range []driver.Lease{own, named} {
		if got := l.(interface{ ID() string }).ID(); got != req.Owner {
			t.Errorf("ID = %q, want %q", got, req.Owner)
		}
	}
	if req.Shared || req.Slots > 0 {
		defer Release(t, Acquire(t, d1, two))
	}

	if err := renew(t, d2, named); err != nil {
		t.Errorf("Renew by id = %v", err)
	}
	if err := renew(t, d1, own); err != nil {
		t.Errorf("Renew by the driver that acquired the lease = %v", err)
	}
	if err := named.SetLabel(t.Context(), "new"); err != nil {
		t.Errorf("SetLabel by id = %v", err)
	}
	stranger := d2.Lease(req.Name, "three", long)
	for op, err := range map[string]error{
		"Renew": renew(t, d2, stranger), "SetLabel": stranger.SetLabel(t.Context(), "x"), "Release": stranger.Release(t.Context()),
	} {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s by an id that holds nothing = %v, want ErrLost", op, err)
		}
	}
	if h := holding(t, d1, req); h == nil || h.Holder.Label != "new" || h.Left < long/2 {
		t.Errorf("the lease is %v, want one with the new label and %v left", h, long)
	}

	for range 2 {
		if err := named.Release(t.Context()); err != nil {
			t.Errorf("Release by id = %v", err)
		}
	}
	for op, err := range map[string]error{
		"Renew": renew(t, d1, own), "Renew by id": renew(t, d2, named), "SetLabel": own.SetLabel(t.Context(), "x"),
		"Release": own.Release(t.Context()), "Release by id": d2.Lease(req.Name, req.Owner, long).Release(t.Context()),
	} {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s after a release by id = %v, want ErrLost", op, err)
		}
	}
	if h := holding(t, d1, req); h != nil {
		t.Errorf("the lease is still there: %v", h)
	}
	if req.Shared || req.Slots > 0 {
		if h := holding(t, d1, two); h == nil {
			t.Error("the lease of another id is gone")
		}
	}
}

// minHoldByID releases by id a lease with a MinHold, which then can be broken.
func minHoldByID(t *testing.T, d1, d2 LeaseNamer) {
	req := driver.Request{Name: "min hold", Owner: "one", TTL: time.Minute, MinHold: time.Hour}
	token := Acquire(t, d1, req).Grant().Token
	Release(t, d2.Lease(req.Name, req.Owner, time.Minute))
	CheckHeld(t, d1, req.Name, "before MinHold is over")
	if h := holding(t, d1, req); h == nil || h.Token != token || h.Left < req.MinHold/2 {
		t.Errorf("what MinHold keeps is %v, want the lease with %v left", h, req.MinHold)
	}
	if err := renew(t, d1, d1.Lease(req.Name, req.Owner, 2*time.Hour)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew of what MinHold keeps = %v, want ErrLost", err)
	}
	if err := d2.Break(t.Context(), req.Name, req.Owner, token); err != nil {
		t.Errorf("Break of what MinHold keeps = %v", err)
	}
	req.Owner, req.MinHold = "two", 0
	Release(t, Acquire(t, d1, req))
}

func renew(t *testing.T, d driver.Driver, l driver.Lease) error {
	t.Helper()
	return d.Renew(t.Context(), []driver.Lease{l})[0].Err
}

// holding returns what the store shows of the lease of a request, or nil.
func holding(t *testing.T, d driver.Inspector, req driver.Request) *driver.Holding {
	t.Helper()
	st, err := d.Status(t.Context(), req.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range st.Holders {
		if h.Owner == req.Owner {
			return &h
		}
	}
	return nil
}
