package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sniblock/snib/driver"
)

// An emptied store has lost all locks, under a driver that held two and another that waited for
// one of them.
type emptied struct {
	holder, waits driver.Driver
	held, idle    driver.Lease
	waiter        *waiter
}

func emptyClauses() []clause {
	canEmpty := when(func(_ driver.Info, h Harness) bool { return len(h.Empty) > 0 }, "the harness can't empty the store")
	after := func(name, why string, check func(t *trial, e emptied)) clause {
		return clause{name: name, why: why, gate: canEmpty, run: func(t *trial) { t.afterEach(check) }}
	}
	return []clause{
		after("Empty/Renew", "whoever deletes all locks has freed them: the next renewal tells the holder",
			func(t *trial, e emptied) {
				t.eventually("ErrLost of a renewal", waitTimeout,
					func() error { return lostOrElse(t.renew(e.holder, e.held)[0].Err) })
			}),
		after("Empty/Release", "a hold that was deleted was lost before its release, which says so",
			func(t *trial, e emptied) {
				if err := lostOrElse(e.idle.Release(t.boundedContext())); err != nil {
					t.Errorf("%v", err)
				}
			}),
		after("Empty/Grants", "nobody needs to restart anything: old and new processes acquire locks, with greater tokens",
			func(t *trial, e emptied) {
				t.lockName = t.name("next " + t.lockName)
				for _, d := range []driver.Driver{e.holder, t.open()} {
					l := t.acquire(d, t.req("next"))
					if t.info.Fencing > driver.FencingNone && l.Grant().Token <= e.idle.Grant().Token {
						t.Errorf("token %d after %d, which was deleted", l.Grant().Token, e.idle.Grant().Token)
					}
					t.release(l)
				}
			}),
		after("Empty/Waiter", "a waiter whose place was deleted is not forgotten: the lock is free, and it gets it",
			func(t *trial, e emptied) { t.release(t.mustBeGranted(e.waiter)) }),
	}
}

// afterEach calls check after each way to empty the store.
func (t *trial) afterEach(check func(t *trial, e emptied)) {
	t.Helper()
	for _, way := range slices.Sorted(maps.Keys(t.h.Empty)) {
		e := emptied{holder: t.open(), waits: t.open()}
		t.lockName = t.name("idle " + way)
		e.idle = t.acquire(e.holder, t.req("idle"))
		t.lockName = t.name(way)
		e.held = t.acquire(e.holder, t.req("held"))
		e.waiter = t.startWaiting(e.waits, t.req("waiter"))
		t.h.Empty[way](t.T)
		check(t, e)
	}
}

// lostOrElse returns nil for an ErrLost.
func lostOrElse(err error) error {
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return fmt.Errorf("the answer about a hold that was deleted is %w, want ErrLost", err)
}
