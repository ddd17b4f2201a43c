package rowstest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// LockedRow has transactions lock the rows of more locks than a driver has connections, for 5 s,
// which is longer than a waiter keeps its place without a heartbeat. A waiter of the same process
// for another lock keeps its place, and gets that lock in its turn. lockRow starts a transaction.
func LockedRow(t *testing.T, open func() Driver, lockRow func(name string) (unlock func())) {
	holder, first, second := open(), open(), open()
	livetest.Acquire(t, holder, rowRequest("locked", "holder"))
	l := livetest.Acquire(t, holder, rowRequest("other", "holder"))
	livetest.Waiting(t, first, rowRequest("locked", "first"))
	w := livetest.Waiting(t, first, rowRequest("other", "first"))
	defer lockRow("locked")()
	for i := range 8 {
		name := fmt.Sprint("locked before ", i)
		livetest.Acquire(t, holder, rowRequest(name, "holder"))
		defer lockRow(name)()
		livetest.Acquiring(t, first, rowRequest(name, "first"))
	}
	behind := livetest.Waiting(t, second, rowRequest("other", "second"))
	renewals := time.NewTicker(100 * time.Millisecond)
	defer renewals.Stop()
	for began := time.Now(); time.Since(began) < 5*time.Second; <-renewals.C {
		livetest.Must(t, holder.Renew(t.Context(), []driver.Lease{l})[0].Err, "Renew")
	}
	livetest.Release(t, l)
	next := w.Get(t)
	behind.Running(t, "before the first waiter released")
	livetest.Release(t, next)
	livetest.Release(t, behind.Get(t))
}

// RenewBesideLockedRows has transactions lock one row of each kind of hold. Only those holds can't
// be renewed meanwhile. waits reports whether a renewal waits for a row.
func RenewBesideLockedRows(t *testing.T, d Driver, lockRow func(name string) (unlock func()), waits func() bool) {
	var due []driver.Lease
	var unlock []func()
	for _, kind := range []string{"exclusive", "shared", "slots", "adopted"} {
		for _, state := range []string{"locked", "free"} {
			req := rowRequest(kind+" "+state, "a")
			if req.Shared = kind == "shared"; kind == "slots" {
				req.Slots = 2
			}
			l := livetest.Acquire(t, d, req)
			if kind == "adopted" {
				l = d.Lease(req.Name, l.ID(), req.TTL)
			}
			if due = append(due, l); state == "locked" {
				unlock = append(unlock, lockRow(req.Name))
			}
		}
	}
	before := driver.Now()
	for i, answer := range d.Renew(t.Context(), due) {
		if isLocked := i%2 == 0; errors.Is(answer.Err, driver.ErrUnavailable) != isLocked || !isLocked && answer.Err != nil {
			t.Errorf("Renew of lease %d = %v, want ErrUnavailable %v", i, answer.Err, isLocked)
		} else if !isLocked && answer.Start.Before(before) {
			t.Errorf("lease %d counts from before the renewal", i)
		}
	}
	for _, end := range unlock[1:] {
		end()
	}
	renewBusyRow(t, d, due[:2], func() func() { return lockRow("exclusive free") }, waits)
	unlock[0]()
	for i, answer := range d.Renew(t.Context(), due) {
		livetest.Want(t, answer.Err, nil, "Renew of lease %d afterwards", i)
	}
}

// renewBusyRow renews two leases while a transaction keeps the row of the first one locked. lock
// locks that of the second one for a moment, as clients do that change it: it is renewed.
func renewBusyRow(t *testing.T, d Driver, due []driver.Lease, lock func() (unlock func()), waits func() bool) {
	livetest.Await(t, "renewal of a row that was locked for a moment, beside one that was locked for long", func() error {
		unlock, renewed := lock(), make(chan error, 1)
		go func() { renewed <- d.Renew(t.Context(), due)[1].Err }()
		for len(renewed) == 0 && !waits() {
		}
		unlock()
		return <-renewed
	})
}
