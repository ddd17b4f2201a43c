package drivertest

import (
	"cmp"
	"errors"
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
				if err := d.Close(); err != nil {
					t.Fatalf("Close = %v", err)
				}
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
			gate: hasSecret(),
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
				t.mustBeHeld(d, t.req("b"), "for another owner through the same driver")
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
		{
			name: "Exclusion/SameOwner",
			why: "Acquire is idempotent for the owner: an acquisition whose answer was lost is asked again, and must " +
				"neither wait for itself nor count twice",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.req("a")
				first := t.acquire(d1, req)
				t.sleep(t.h.TTL / 4) // so that the first Start is old
				before := driver.Now()
				again := t.acquire(d1, req)
				if got, want := again.Grant().Token, first.Grant().Token; got != want {
					t.Errorf("Token for the same owner = %d, want %d as before", got, want)
				}
				if early := before.Sub(again.Grant().Start); early > t.h.TTL/8 {
					t.Errorf("Start for the same owner lies %v before the second Acquire, whose TTL is a fresh one", early)
				}
				t.mustBeHeld(d2, t.req("b"), "after the holder asked again")
				t.release(again)
				t.mustBeFree(d2, "after one Release of a lease asked for twice")
			},
		},
		{
			name: "Exclusion/SameOwnerFreshTTL",
			why:  "an owner that acquires again gets a fresh TTL; a lease that ends by its first one ends early",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.rounds(func() bool {
					req := t.shortReq("a")
					l := t.acquire(d1, req)
					t.sleep(req.TTL * 6 / 10)
					again := t.acquire(d1, req)
					if again.Grant().Token != l.Grant().Token {
						// The lease had lapsed, or Exclusion/SameOwner fails too.
						return false
					}
					t.sleep(req.TTL * 6 / 10)
					_, err := t.tryAcquire(d2, t.req("b"))
					if again.Grant().Start.Add(req.TTL * 9 / 10).Reached(driver.Now()) {
						return false
					}
					if !errors.Is(err, driver.ErrHeld) {
						t.Fatalf("Acquire = %v, want ErrHeld: the holder asked again just now", err)
					}
					return true
				})
			},
		},
		{
			name: "Exclusion/SameOwnerElsewhere",
			why:  "the owner, not the process, holds: it may ask again from where it came back to life",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				req := t.req("a")
				first, again := t.acquire(d1, req), t.acquire(d2, req)
				if got, want := again.Grant().Token, first.Grant().Token; got != want {
					t.Errorf("Token for the same owner through another driver = %d, want %d as before", got, want)
				}
				t.mustBeHeld(d3, t.req("b"), "after the holder asked again elsewhere")
				t.release(again)
				t.mustBeFree(d3, "after one Release of a lease asked for twice")
			},
		},
	}
}
