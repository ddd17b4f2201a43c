package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

func inspectClauses() []clause {
	return []clause{
		{
			name: "Inspect/Free",
			why:  "a lock that nobody holds has a Status without Holders, and is no error",
			run: func(t *trial) {
				d := t.open()
				check := func(when string) {
					t.Helper()
					st := t.status(d)
					if st.Name != t.lockName || len(st.Holders) > 0 || len(st.Waiters) > 0 {
						t.Errorf("Status of a lock that %s = %+v, want only the name %q", when, st, t.lockName)
					}
				}
				check("was never used")
				t.release(t.acquire(d, t.req("a")))
				check("was released")
			},
		},
		{
			name: "Inspect/Held",
			why:  "people who wait want to know for whom, since when, and for how long at most",
			gate: named(),
			run:  showsHolder,
		},
		{
			name: "Inspect/Expired",
			why: "the holder of a lease that has ended holds nothing: if it is shown as the holder, people look in the " +
				"wrong place",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.acquire(d1, t.shortReq("a"))
				t.sleep(t.h.TTL)
				t.eventually("Status without the holder whose lease ended", t.slack(), func() error {
					if st := t.status(d2); len(st.Holders) > 0 {
						return fmt.Errorf("it shows %+v", st.Holders)
					}
					return nil
				})
			},
		},
		{
			name: "Inspect/Waiters",
			why:  "people see who waits, on which side, and in which order they would be served",
			gate: named(),
			run:  showsWaiters,
		},
		{
			name: "Inspect/Modes",
			why:  "all readers, and all holders of a semaphore, are holders; people see of what kind the lock is",
			gate: manyHolders(),
			run: func(t *trial) {
				d, d2 := t.open(), t.open()
				t.lockName = t.name("shared")
				if t.info.Shared {
					t.acquire(d, t.sharedReq("a"))
					t.acquire(d2, t.sharedReq("b"))
					if st := t.status(d); !st.Shared || st.Slots != 0 || len(st.Holders) != 2 {
						t.Errorf("Status with two readers = %+v, want Shared and two Holders", st)
					}
				}
				t.lockName = t.name("slots")
				if t.info.Slots {
					for i, n := range []int{4, 3, 5} {
						t.acquire(d, t.slotReq(fmt.Sprint(i), n))
					}
					if st := t.status(d); st.Shared || st.Slots != 3 || len(st.Holders) != 3 {
						t.Errorf("Status with holders that asked for 4, 3 and 5 slots = %+v, want Slots 3 and three Holders", st)
					}
				}
			},
		},
		{
			name: "Inspect/List",
			why:  "List shows what is held or waited for, under the names that callers use, and nothing else",
			gate: named(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				want := []string{t.name("list/a"), t.name("list/b"), t.name("list/c d")}
				for i, name := range want {
					req := t.req(fmt.Sprint("a", i))
					req.Name = name
					t.acquire(d1, req)
				}
				gone, elsewhere := t.req("b"), t.req("c")
				gone.Name, elsewhere.Name = t.name("list/gone"), t.name("other")
				t.release(t.acquire(d1, gone))
				t.acquire(d1, elsewhere)
				t.mustList(d2, t.name("list/"), want...)
				t.mustList(d2, t.name("list/c d"), want[2])
				t.mustList(d2, t.name("nothing"))
			},
		},
		{
			name: "Inspect/ListNames",
			why:  "what a driver escapes it unescapes: people see, and copy, the names that callers use",
			gate: named(),
			run: func(t *trial) {
				d := t.open()
				for _, name := range unusualNames() {
					t.lockName = t.name(name)
					if len(t.lockName) > driver.MaxName {
						t.lockName = strings.ToValidUTF8(t.lockName[:driver.MaxName], "")
					}
					l := t.acquire(d, t.req("a"))
					t.eventually(fmt.Sprintf("List with %q", t.lockName), waitTimeout, func() error {
						got, err := t.list(d, t.name(""), func(driver.Status) {})
						if err == nil && !slices.Contains(got, t.lockName) {
							err = fmt.Errorf("it has %q", got)
						}
						return err
					})
					t.release(l)
				}
			},
		},
		{
			name: "Inspect/ListPrefix",
			why:  "a prefix is text: what is a wildcard to the store matches itself only, and case counts",
			gate: named(),
			run: func(t *trial) {
				d := t.open()
				tails := []string{"%", "_", "*", "?", "[ab]", `\`, "'", "a", "A", "b", "{", "."}
				for i, tail := range tails {
					req := t.req(fmt.Sprint("a", i))
					req.Name = t.name("p" + tail + "end")
					t.acquire(d, req)
				}
				for _, tail := range tails {
					t.mustList(d, t.name("p"+tail), t.name("p"+tail+"end"))
				}
			},
		},
		{
			name: "Inspect/ListStops",
			why:  "List ends when yield says so: a store of a million locks is not read for the first ten",
			gate: named(),
			run: func(t *trial) {
				d := t.open()
				var all []string
				for i := range 4 {
					req := t.req(fmt.Sprint("a", i))
					req.Name = t.name(fmt.Sprint("stop ", i))
					t.acquire(d, req)
					all = append(all, req.Name)
				}
				t.mustList(d, t.name("stop "), all...)
				seen := 0
				err := d.List(t.boundedContext(), t.name("stop "), func(driver.Status) bool {
					seen++
					return seen < 2
				})
				if err != nil || seen != 2 {
					t.Errorf("List called yield %d times and = %v; want 2 calls, since the second said stop, and nil", seen, err)
				}
			},
		},
		{
			name: "Inspect/ListHoldsNothingUp",
			why:  "List must not hold the store up: while a person reads the output, holders release and acquire",
			gate: named(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				held := t.acquire(d1, t.req("a"))
				free := t.req("b")
				free.Name = t.name("free")
				t.mustList(d2, t.lockName, t.lockName)
				seen := 0
				err := d2.List(t.boundedContext(), t.lockName, func(driver.Status) bool {
					seen++
					w := t.startAcquire(d1, free)
					if _, ok := await(t, w.done, waitTimeout); !ok {
						t.Errorf("Acquire waits for a List") // Fatalf must not end the goroutine in the middle of a List
						return false
					}
					if err := t.renew(d1, held)[0].Err; w.err != nil || err != nil {
						t.Errorf("Acquire during a List = %v, Renew = %v", w.err, err)
					}
					return true
				})
				if err != nil || seen != 1 {
					t.Errorf("List called yield %d times and = %v; want 1 call and nil", seen, err)
				}
			},
		},
	}
}

func showsHolder(t *trial) {
	d1, d2 := t.open(), t.open()
	req := t.req("a")
	req.Holder = driver.Holder{Host: "host.example", PID: 4711, Label: `make "all" it's ☕`}
	before := driver.Now()
	l := t.acquire(d1, req)
	t.sleep(t.h.TTL / 4)
	aged := t.h.TTL / 4
	st := t.status(d2)
	most := driver.Now().Sub(before)
	if st.Name != t.lockName || st.Shared || st.Slots != 0 || len(st.Holders) != 1 || len(st.Waiters) != 0 {
		t.Fatalf("Status of a lock with one holder = %+v", st)
	}
	h := st.Holders[0]
	if h.ID != l.ID() || h.Holder != req.Holder {
		t.Errorf("Holder = %q, %+v; want %q, %+v", h.ID, h.Holder, l.ID(), req.Holder)
	}
	if want := l.Grant().Token; h.Token != want {
		t.Errorf("Token in Status = %d, want %d as in Grant", h.Token, want)
	}
	if h.Held < aged/2 || h.Held > most+t.slack() {
		t.Errorf("Held = %v after %v", h.Held, most)
	}
	if h.Left == driver.NoExpiry {
		t.Errorf("a hold with a lease is shown without an expiry: people would free it for a leak")
	}
	ttl := leaseLength(l, req)
	t.eventually("Left that runs down", t.slack(), func() error { // a driver may extend a lease to check it
		st := t.status(d2)
		if len(st.Holders) != 1 || st.Holders[0].Left <= 0 || st.Holders[0].Left > ttl-aged/2 {
			return fmt.Errorf("Status = %+v with a TTL of %v", st, ttl)
		}
		return nil
	})
}

func showsWaiters(t *trial) {
	d1, d2, d3 := t.open(), t.open(), t.open()
	t.acquire(d1, t.req("a"))
	var want []string
	var waits []*waiter
	for i, d := range []driver.Driver{d2, d3, d2} {
		req := t.req(fmt.Sprint("b", i))
		req.Shared = t.info.Shared && i == 2
		req.Holder = driver.Holder{Host: "host.example", PID: i + 1, Label: "label"}
		waits = append(waits, t.startWaiting(d, req))
		want = append(want, req.ID)
	}
	check := func(when string) {
		t.Helper()
		var got []string
		for _, w := range t.status(d1).Waiters {
			i := slices.IndexFunc(waits, func(x *waiter) bool { return x.req.ID == w.ID })
			if i < 0 || w.Holder != waits[i].req.Holder || w.Shared != waits[i].req.Shared {
				t.Errorf("Status %s shows a waiter %+v that never asked", when, w)
			}
			got = append(got, w.ID)
		}
		if !t.info.Fair {
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("Status %s shows waiters %q, want %q", when, got, want)
		}
	}
	check("with three waiters")
	givenUp := time.Now()
	waits[1].cancel(errGone)
	_ = t.mustFail(waits[1])
	want = slices.Delete(want, 1, 2)
	t.mustBeWithdrawn(waits[1].returnedTime.Sub(givenUp), func() error {
		if st := t.status(d1); len(st.Waiters) != len(want) {
			return fmt.Errorf("Status shows waiters: %+v", st.Waiters)
		}
		return nil
	})
	check("after one of three gave up")
}

// mustList checks what List yields for a prefix. It repeats a List that misses locks: a lock that
// was granted just now may be missing.
func (t *trial) mustList(d driver.Driver, prefix string, want ...string) {
	t.Helper()
	check := func(st driver.Status) {
		if len(st.Holders)+len(st.Waiters) == 0 {
			t.Errorf("List shows a lock that nobody holds or waits for: %+v", st)
		}
	}
	for deadline := time.Now().Add(waitTimeout); ; t.sleep(t.pause()) {
		got, err := t.list(d, prefix, check)
		if err == nil && slices.Equal(got, want) {
			return
		}
		isWrong := func(name string) bool { return !slices.Contains(want, name) }
		if err != nil || len(got) >= len(want) || slices.ContainsFunc(got, isWrong) || time.Now().After(deadline) {
			t.Errorf("List of %q = %q, %v; want %q", prefix, got, err, want)
			return
		}
	}
}

// list returns the names that List yields for a prefix, in order, and has check look at each lock.
func (t *trial) list(d driver.Driver, prefix string, check func(driver.Status)) (names []string, err error) {
	t.Helper()
	err = t.retryIfLate(func() error {
		names = nil
		return d.List(t.boundedContext(), prefix, func(st driver.Status) bool {
			check(st)
			names = append(names, st.Name)
			return true
		})
	})
	slices.Sort(names)
	return names, err
}

func breakClauses() []clause {
	return gated(named(), []clause{
		{
			name: "Break/Frees",
			why: "a hold that hangs is freed by force: waiters go on, and the hold stays lost, whatever its holder does " +
				"and whether or not the lock is free",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				w := t.startWaiting(d2, t.req("b"))
				t.mustAnswer(d3.Break(t.boundedContext(), t.lockName, l.ID()), nil, "Break")
				next := t.mustBeGranted(w)
				if t.info.Fencing > driver.FencingNone && next.Grant().Token <= l.Grant().Token {
					t.Errorf("Token after Break = %d, want more than %d", next.Grant().Token, l.Grant().Token)
				}
				t.release(next)
				t.mustBeLost(d1, l, "of a hold that was broken")
				t.mustAnswer(l.Release(t.boundedContext()), driver.ErrLost, "Release of a hold that was broken")
			},
		},
		{
			name: "Break/TellsHolder",
			why:  "a holder whose lease is broken by force is told at once, not at its next renewal: until then two work",
			gate: when(func(i driver.Info, _ Harness) bool { return i.TellsLoss },
				"the driver tells of a forced end in renewals only"),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				// The second request uses connections that exist already.
				for _, id := range []string{"a", "b"} {
					t.lockName = t.name(id)
					req := t.req(id)
					losses := recordLosses(&req)
					l := t.acquire(d1, req)
					t.mustAnswer(d2.Break(t.boundedContext(), t.lockName, l.ID()), nil, "Break")
					if err, ok := await(t, losses, 0); !ok || !errors.Is(err, driver.ErrLost) {
						t.Errorf("OnLost after a Break was called: %v, with %v; want it called soon, with ErrLost", ok, err)
					}
				}
			},
		},
		{
			name: "Break/ComparesID",
			why: "Break compares and frees in one step: a person who saw one holder must not break another, and learns " +
				"that it has gone",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				t.mustAnswer(d2.Break(t.boundedContext(), t.lockName, t.req("b").ID), driver.ErrLost, "Break of another id")
				t.mustBeHeld(d2, t.req("probe"), "after Break of another id")
				t.release(l)
				t.mustAnswer(d2.Break(t.boundedContext(), t.lockName, l.ID()), driver.ErrLost, "Break of a hold that was released")
			},
		},
		{
			name: "Break/OneOfMany",
			why:  "Break frees exactly one hold: the other readers, or holders of slots, go on",
			gate: manyHolders(),
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				newReq := func(id string) driver.Request {
					if t.info.Shared {
						return t.sharedReq(id)
					}
					return t.slotReq(id, 3)
				}
				broken, spared := t.acquire(d1, newReq("a")), t.acquire(d2, newReq("b"))
				t.mustAnswer(d3.Break(t.boundedContext(), t.lockName, broken.ID()), nil, "Break")
				t.mustBeLost(d1, broken, "of the hold that was broken")
				t.mustAnswer(t.renew(d2, spared)[0].Err, nil, "Renew of a hold beside the one that was broken")
			},
		},
	})
}

func withdrawClauses() []clause {
	return []clause{
		{
			name: "Withdraw/Waiter",
			why:  "a dead waiter keeps nobody from the lock; one that is alive after all goes to the end of the queue",
			run:  withdrawsWaiter,
		},
		{
			name: "Withdraw/Holds",
			why:  "whoever withdraws a waiter ends no hold: the waiter may have been granted meanwhile",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req, nobody := t.req("a"), t.req("nobody")
				t.withdraw(d2, nobody)
				l := t.acquire(d1, req)
				req.ID = l.ID()
				t.withdraw(d2, req)
				t.withdraw(d2, nobody)
				t.mustAnswer(t.renew(d1, l)[0].Err, nil, "Renew of a hold whose id was withdrawn")
				t.mustBeHeld(d2, t.req("probe"), "after the id of the holder was withdrawn")
			},
		},
	}
}

// withdrawsWaiter withdraws the first of two waiters, which is alive. Where waiters have no order,
// there is only one, which it withdraws until Status does not show it: the waiter may send its
// request again meanwhile.
func withdrawsWaiter(t *trial) {
	d1, d2, d3 := t.open(), t.open(), t.open()
	l := t.acquire(d1, t.req("a"))
	first := t.startWaiting(d2, t.req("b"))
	if !t.info.Fair {
		t.eventually("Status without the waiter", waitTimeout, func() error {
			t.withdraw(d1, first.req)
			return t.checkNoWaiters(d3)
		})
		t.release(l)
		t.release(t.mustBeGranted(first))
		return
	}
	second := t.startWaiting(d3, t.req("c"))
	t.withdraw(d1, first.req)
	t.release(l)
	l = t.mustBeGranted(second)
	t.mustBeWaiting(first, "of the waiter that was withdrawn")
	t.release(l)
	t.release(t.mustBeGranted(first))
}

// withdraw withdraws a request. It skips the case if the driver leaves that to its store.
func (t *trial) withdraw(d driver.Driver, req driver.Request) {
	t.Helper()
	err := d.Withdraw(t.boundedContext(), req.Name, req.ID)
	if errors.Is(err, errors.ErrUnsupported) {
		t.skip("the store itself ends the places of dead waiters")
	}
	t.mustAnswer(err, nil, "Withdraw")
}
