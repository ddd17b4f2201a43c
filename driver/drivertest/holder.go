package drivertest

import (
	"fmt"

	"github.com/sniblock/snib/driver"
)

func holderClauses() []clause {
	return gated(named(), []clause{
		{
			name: "Holder/Shown",
			why:  "people see what a holder is doing now, and of whose hold they see it",
			run:  holderIsShown,
		},
		{
			name: "Holder/KeepsQueue",
			why:  "a holder that says how far it is has not released: nobody else is granted the lock for it",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				next := t.startWaiting(d2, t.req("b"))
				for i := range 3 {
					t.setHolder(l, driver.Holder{Label: fmt.Sprint("part ", i)})
				}
				t.mustBeWaiting(next, "after the holder has changed its label")
				t.mustAnswer(t.renew(d1, l)[0].Err, nil, "Renew after SetHolder")
				t.release(l)
				t.mustBeGranted(next)
			},
		},
		{
			name: "Holder/Ended",
			why:  "a lease that has ended is neither brought back nor shown in place of the present holder",
			run:  holderOfEnded,
		},
		{
			name: "Holder/One",
			why:  "each of several holders has a label of its own",
			gate: manyHolders(),
			run:  holderOfOne,
		},
	})
}

// setHolder changes how the holder of a lease that is held is shown.
func (t *trial) setHolder(l driver.Lease, h driver.Holder) {
	t.Helper()
	t.mustAnswer(t.retryIfLate(func() error { return l.SetHolder(t.boundedContext(), h) }), nil, "SetHolder of a lease")
}

func holderIsShown(t *trial) {
	d1, d2 := t.open(), t.open()
	req := t.req("a")
	req.Holder = driver.Holder{Host: "host.example", PID: 4711, Label: "at first"}
	l := t.acquire(d1, req)
	t.sleep(t.h.TTL / 4)
	before := t.status(d2)
	last := driver.Holder{Host: "other.example", PID: 4712, Kind: driver.KindDetached}
	for _, want := range []driver.Holder{{Host: "host.example", PID: 4711, Label: `1/2 "☕`}, last} {
		t.setHolder(l, want)
		st := t.status(d2)
		if len(st.Holders) != 1 || len(before.Holders) != 1 {
			t.Fatalf("Status = %+v, and after SetHolder %+v; want one holder", before, st)
		}
		h := st.Holders[0]
		if h.ID != l.ID() || h.Token != l.Grant().Token || h.Holder != want {
			t.Errorf("Status after SetHolder(%+v) shows token %d, %+v; want the same hold, %d, with it",
				want, h.Token, h.Holder, l.Grant().Token)
		}
		if was := before.Holders[0].Held; was-h.Held > t.h.TTL/8 {
			t.Errorf("Held = %v before SetHolder, and %v after it", was, h.Held)
		}
	}
	t.mustAnswer(t.renew(d1, l)[0].Err, nil, "Renew after SetHolder")
	if got := t.status(d2).Holders; len(got) != 1 || got[0].Holder != last {
		t.Errorf("Status after a renewal shows %+v, want one holder as SetHolder has set it", got)
	}
}

func holderOfEnded(t *trial) {
	d1, d2 := t.open(), t.open()
	mustBeLost := func(l driver.Lease, when string) {
		t.Helper()
		err := t.retryIfLate(func() error { return l.SetHolder(t.boundedContext(), driver.Holder{Label: "too late"}) })
		t.mustAnswer(err, driver.ErrLost, "SetHolder of a lease that %s", when)
	}
	released := t.acquire(d1, t.req("a"))
	t.release(released)
	mustBeLost(released, "was released")
	t.mustBeFree(d2, "after SetHolder of a lease that was released")

	req := t.req("b")
	req.Holder.Label = "next"
	next := t.acquire(d2, req)
	mustBeLost(released, "was released, and whose lock another has,")
	st := t.status(d1)
	if len(st.Holders) != 1 || st.Holders[0].ID != next.ID() || st.Holders[0].Holder != req.Holder {
		t.Fatalf("after SetHolder of a lease that was released, Status = %+v; want %+v as the holder", st, req)
	}
	t.mustAnswer(d1.Break(t.boundedContext(), t.lockName, next.ID()), nil, "Break")
	mustBeLost(next, "was broken")
}

func holderOfOne(t *trial) {
	check := func(name string, make func(string) driver.Request) {
		d1, d2 := t.open(), t.open()
		t.lockName = t.name(name)
		one, other := make("a"), make("b")
		one.Holder.Label, other.Holder.Label = "one", "other"
		l := t.acquire(d1, one)
		l2 := t.acquire(d2, other)
		t.setHolder(l, driver.Holder{Label: "changed"})
		got := map[string]string{} // labels by id
		for _, h := range t.status(d2).Holders {
			got[h.ID] = h.Holder.Label
		}
		if len(got) != 2 || got[l.ID()] != "changed" || got[l2.ID()] != "other" {
			t.Errorf("labels by id after SetHolder(%q) of %q = %q", "changed", l.ID(), got)
		}
		t.mustAnswer(t.renew(d1, l)[0].Err, nil, "Renew after SetHolder")
	}
	if t.info.Shared {
		check("shared", t.sharedReq)
	}
	if t.info.Slots {
		check("slots", func(id string) driver.Request { return t.slotReq(id, 3) })
	}
}
