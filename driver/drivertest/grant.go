package drivertest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sniblock/snib/driver"
)

func grantClauses() []clause {
	return []clause{
		{
			name: "Grant/ID",
			why:  "a lease is found again by the id of the attempt that led to it, and by nothing else",
			run: func(t *trial) {
				d := t.open()
				req := t.req("a")
				if l := t.acquire(d, req); !strings.HasPrefix(l.ID(), req.ID) {
					t.Errorf("ID of a lease is not that of its request")
				}
			},
		},
		{
			name: "Grant/OtherProcess",
			why:  "a lease is written down by name and id, and kept or released by another process",
			gate: leaseTenure(),
			run: onEachKind(func(t *trial, newReq func(id string) driver.Request) {
				d1, d2 := t.open(), t.open()
				req := newReq("a")
				l, there := t.acquireAndName(d1, d2, req)
				if got := t.renew(d2, there)[0]; got.Err != nil || got.Start.IsZero() {
					t.Errorf("Renew in another process = %+v, want a Start", got)
				}
				want := driver.Holder{Host: "other.example", PID: 4711, Label: "next"}
				t.setHolder(there, want)
				if st := t.statusOf(d1, req.Name); len(st.Holders) != 1 || st.Holders[0].Holder != want {
					t.Errorf("Status after SetHolder in another process = %+v, want %+v as the holder", st, want)
				}
				t.release(there)
				t.mustBeLost(d1, l, "of a lease that another process has released")
				t.mustBeLost(d2, there, "of a lease that was released")
			}),
		},
		{
			name: "Grant/OtherSession",
			why:  "where a lease ends with a session, another process is told that it can't act on it, and changes nothing",
			gate: sessionTenure(),
			run:  onEachKind(otherSession),
		},
		{
			name: "Grant/NotWaiting",
			why:  "an id that waits is no lease: whoever releases it must not take its place in the queue away",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				req := t.req("b")
				w := t.startWaiting(d1, req)
				err := d2.Lease(req.Name, req.ID, req.TTL).Release(t.boundedContext())
				if !errors.Is(err, driver.ErrLost) && !t.isUnsupported(err) {
					t.Errorf("Release by the id of a waiter = %v, want ErrLost", err)
				}
				t.release(l)
				t.mustBeGranted(w)
			},
		},
		{
			name: "Grant/AnotherID",
			why:  "a request of an earlier attempt or grant changes nothing, whenever it arrives",
			gate: leaseTenure(),
			run: onEachKind(func(t *trial, newReq func(id string) driver.Request) {
				d1, d2 := t.open(), t.open()
				req := newReq("b")
				old := t.acquire(d1, newReq("a"))
				t.release(old)
				l := t.acquire(d1, req)
				before := t.statusOf(d2, req.Name)
				t.lateRequests(d2, d2.Lease(req.Name, old.ID(), req.TTL))
				if after := t.statusOf(d2, req.Name); len(after.Holders) != 1 ||
					after.Holders[0].Holder != before.Holders[0].Holder {
					t.Errorf("after late requests of an earlier grant, Status = %+v; before them, %+v", after, before)
				}
				t.mustAnswer(t.renew(d1, l)[0].Err, nil, "Renew after late requests of an earlier grant")
			}),
		},
		{
			name: "Grant/NeverShortened",
			why:  "a renewal with a shorter TTL, as of a process that had the lease before, leaves the later end",
			gate: leaseTenure(),
			run: onEachKind(func(t *trial, newReq func(id string) driver.Request) {
				d1, d2 := t.open(), t.open()
				req := newReq("a")
				l := t.acquire(d1, req)
				t.mustAnswer(t.renew(d2, d2.Lease(req.Name, l.ID(), t.h.TTL))[0].Err, nil, "Renew with a shorter TTL")
				t.sleep(t.h.TTL + t.h.TTL/4)
				t.mustAnswer(t.renew(d1, l)[0].Err, nil, "Renew after one with a shorter TTL")
			}),
		},
		{
			name: "Grant/MinHold",
			why:  "a release by another process keeps the lock for MinHold, and a person can end that by force",
			gate: leaseTenure(),
			run: onEachKind(func(t *trial, newReq func(id string) driver.Request) {
				d1, d2 := t.open(), t.open()
				req := newReq("a")
				req.MinHold = t.longTTL()
				l := t.acquire(d1, req)
				t.release(d2.Lease(req.Name, l.ID(), req.TTL))
				t.mustBeLost(d1, l, "of a lease that another process has released, and MinHold keeps")
				if st := t.statusOf(d1, req.Name); len(st.Holders) != 1 || st.Holders[0].Holder.Kind != driver.KindKept {
					t.Fatalf("Status of a lock that MinHold keeps = %+v, want one holder that is kept", st)
				}
				t.mustAnswer(d1.Break(t.boundedContext(), req.Name, l.ID()), nil, "Break of what MinHold keeps")
				t.release(t.acquire(d1, newReq("b")))
			}),
		},
		{
			name: "Grant/MinHoldOfWaiter",
			why:  "MinHold counts from the grant: what a waiter waited is no part of its hold, whoever releases it",
			run: func(t *trial) {
				for _, byID := range []bool{false, true} {
					t.minHoldOfWaiter(byID)
				}
			},
		},
	}
}

// isUnsupported reports whether an answer about a lease by its id says that only its session can
// act on it, as it must where the tenure is a session.
func (t *trial) isUnsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) && t.info.Tenure == driver.TenureSession
}

// acquireAndName acquires a lease with d1, and returns what d2 makes of its name and id, too.
func (t *trial) acquireAndName(d1, d2 driver.Driver, req driver.Request) (l, there driver.Lease) {
	t.Helper()
	l = t.acquire(d1, req)
	there = d2.Lease(req.Name, l.ID(), req.TTL)
	if g := there.Grant(); there.ID() != l.ID() || g != (driver.Grant{}) {
		t.Errorf("Lease of an id has another id, or knows of a grant, %+v", g)
	}
	return l, there
}

// otherSession has a driver act on a lease that belongs to the session of another one.
func otherSession(t *trial, newReq func(id string) driver.Request) {
	d1, d2 := t.open(), t.open()
	req := newReq("a")
	l, there := t.acquireAndName(d1, d2, req)
	for what, err := range map[string]error{
		"Renew":     t.renew(d2, there)[0].Err,
		"SetHolder": there.SetHolder(t.boundedContext(), driver.Holder{Label: "theirs"}),
		"Release":   there.Release(t.boundedContext()),
	} {
		if !t.isUnsupported(err) {
			t.Errorf("%s through another session = %v, want ErrUnsupported", what, err)
		}
	}
	t.mustAnswer(t.renew(d1, l)[0].Err, nil, "Renew after what another session has tried")
}

// minHoldOfWaiter releases a hold that had to wait: by itself, or by its id through another driver.
func (t *trial) minHoldOfWaiter(byID bool) {
	t.Helper()
	d1, d2 := t.open(), t.open()
	t.lockName = t.name(fmt.Sprint("waited for, by id ", byID))
	first, req := t.acquire(d1, t.req("first")), t.req("waiter")
	req.MinHold = 2 * t.h.TTL
	w := t.startWaiting(d1, req)
	t.sleep(t.h.TTL) // the wait, which must not count
	freed := driver.Now()
	t.release(first)
	l := t.mustBeGranted(w)
	if byID {
		there := d2.Lease(req.Name, l.ID(), req.TTL)
		if err := there.Release(t.boundedContext()); t.isUnsupported(err) {
			return
		} else if err != nil {
			t.Fatalf("Release by id = %v, want nil", err)
		}
		t.mustBeLost(d1, l, "of a lease that was released by its id, and MinHold keeps")
	} else {
		t.release(l)
	}
	_, at := t.acquireByPolling(d2, t.req("next"), req.MinHold+waitTimeout)
	if held := at.Sub(freed); held < req.MinHold-maxRounding {
		t.Errorf("granted to another %v after the grant at the earliest, want MinHold, %v, at least", held, req.MinHold)
	}
}

// onEachKind runs f with a maker of requests for a lock of each kind that the driver has: a
// reader, a slot and the exclusive one. Two requests of one call have one name.
func onEachKind(f func(t *trial, newReq func(id string) driver.Request)) func(*trial) {
	return func(t *trial) {
		if t.info.Shared {
			t.lockName = t.name("shared")
			f(t, t.sharedReq)
		}
		if t.info.Slots {
			t.lockName = t.name("slots")
			f(t, func(id string) driver.Request { return t.slotReq(id, 1) })
		}
		t.lockName = t.name("alone")
		f(t, t.req)
	}
}

// lateRequests sends each request that names a grant, for one that has ended.
func (t *trial) lateRequests(d driver.Driver, l driver.Lease) {
	t.Helper()
	t.mustBeLost(d, l, "of an earlier grant")
	for what, err := range map[string]error{
		"Release":   l.Release(t.boundedContext()),
		"SetHolder": l.SetHolder(t.boundedContext(), driver.Holder{Label: "late"}),
		"Break":     d.Break(t.boundedContext(), t.lockName, l.ID()),
	} {
		t.mustAnswer(err, driver.ErrLost, "%s of an earlier grant", what)
	}
}
