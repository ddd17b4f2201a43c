package drivertest

import (
	"cmp"
	"reflect"

	"github.com/sniblock/snib/driver"
)

func infoClauses() []clause {
	return []clause{
		{
			name: "Info/Constant",
			why:  "the core asks for Info once, when a Locker is built; what it says later goes unheard",
			run: func(t *trial) {
				d := t.open()
				check := func(when string) {
					t.Helper()
					if got := d.Info(); !reflect.DeepEqual(got, t.info) {
						t.Errorf("Info %s = %+v, want %+v as at first", when, got, t.info)
					}
				}
				if t.info.Backend == "" {
					t.Errorf("Info().Backend is empty; it names the store in errors and metrics")
				}
				l := t.acquire(d, t.req("a"))
				check("with a lease held")
				t.release(l)
				t.mustAnswer(d.Close(), nil, "Close")
				check("after Close")
			},
		},
		{
			name: "Info/TTLRange",
			why:  "the bounds of Info are inclusive: a TTL that the core lets through must not be refused by the store",
			gate: when(func(i driver.Info, _ Harness) bool { return i.MinTTL > 0 || i.MaxTTL > 0 },
				"the driver has no bounds for TTLs"),
			run: func(t *trial) {
				d := t.open()
				for _, ttl := range []string{"MinTTL", "MaxTTL"} {
					req := t.req(ttl)
					req.Name = t.name(ttl)
					req.TTL = cmp.Or(t.info.MinTTL, req.TTL)
					if ttl == "MaxTTL" {
						req.TTL = cmp.Or(t.info.MaxTTL, req.TTL)
					}
					w := t.startAcquire(d, req)
					if t.waitReturned(w, waitTimeout); w.err != nil {
						t.Errorf("Acquire with a TTL of %v, %s, = %v; want a lease", req.TTL, ttl, w.err)
					}
				}
			},
		},
		{
			name: "Info/NoSecret",
			why:  "errors end up in logs and tickets: the password in the store's URL must not be in them",
			gate: when(func(_ driver.Info, h Harness) bool { return h.Secret != "" }, "the harness has no secret"),
			run:  noSecret,
		},
	}
}

func exclusionClauses() []clause {
	return []clause{
		{
			name: "Exclusion/SameDriver",
			why:  "a driver is not reentrant: two requests through one driver exclude each other",
			run: func(t *trial) {
				d := t.open()
				t.acquire(d, t.req("a"))
				t.mustBeHeld(d, t.req("b"), "for another attempt through the same driver")
			},
		},
		{
			name: "Exclusion/OtherDriver",
			why:  "two processes exclude each other, whatever either of them knew of the lock before",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.release(t.acquire(d2, t.req("earlier"))) // so that d2 has something to remember
				l := t.acquire(d1, t.req("a"))
				t.mustBeHeld(d2, t.req("b"), "through another driver")
				t.release(l)
				t.acquire(d2, t.req("c"))
				t.mustBeHeld(d1, t.req("d"), "through the driver that held it before")
			},
		},
		{
			name: "Exclusion/Names",
			why:  "locks of different names have nothing to do with each other",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				a, b := t.req("a"), t.req("b")
				a.Name, b.Name = t.name("one"), t.name("two")
				l := t.acquire(d1, a)
				t.acquire(d2, b)
				t.release(l)
				b.ID = t.req("c").ID
				t.mustBeHeld(d1, b, "after the release of another name")
			},
		},
	}
}
