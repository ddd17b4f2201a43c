// Package drivertest is the conformance suite for drivers: the sentences with MUST in package
// driver, as tests.
//
// A backend's whole test is a call of [Run] with a [Harness]:
//
//	func TestConformance(t *testing.T) {
//		path := filepath.Join(t.TempDir(), "locks.db")
//		drivertest.Run(t, drivertest.Harness{
//			Open: func(t *testing.T) driver.Driver { return open(t, path) },
//			TTL:  200 * time.Millisecond,
//		})
//	}
//
// Each case is a subtest, Group/Name. A failure prints why the clause exists. A case that the
// driver or the harness can't run is skipped with the reason: a driver is not tested for what
// it does not promise.
//
// # One store for all
//
// Cases use names of their own, different in each run, so one store serves them all, and a
// store that lives on between runs does no harm. Only Names/Unusual takes fixed names, such as
// ".": if necessary, it waits for them. A harness whose cases work better with a store each
// sets [Harness.Fresh].
//
// # Time
//
// On the wall clock, cases that depend on a lease's end take a few [Harness.TTL] each; a round
// that was disturbed by a slow machine is repeated. In-process drivers set [Harness.Bubble]:
// their time is exact, and so are the checks.
package drivertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Harness gives the suite access to a backend. Open is required; a case that needs another
// function is skipped if that function is nil.
//
// The functions get the T of the case, the same one for all calls in it. They may fail it or
// register a cleanup.
type Harness struct {
	// Open returns a new driver on the store that the cases share. Several drivers in one case
	// stand for several processes: they share no more than processes do. The suite closes them.
	Open func(t *testing.T) driver.Driver

	// TTL is the shortest lease that the backend keeps reliably: long compared with a round
	// trip, short enough to wait for. The default is 200 ms, or 1 s in a bubble.
	TTL time.Duration

	// Slack is how late the store may be in ending a lease or in answering, without being
	// wrong, on a machine that is not overloaded; where timers are late, ten times their
	// lateness is added. A tenth of Slack is what a waiter may take to wake up after a release.
	// The default is 1 s, or 50 ms in a bubble.
	Slack time.Duration

	// Secret, if not empty, is part of the driver's configuration, such as the password in its
	// URL. No error may contain it.
	Secret string

	// Anonymous says that the store is a lock of another program, which does not know what Status
	// shows: only the driver that has made a request knows its id, token and label. List, Break and
	// SetHolder are then errors.ErrUnsupported.
	Anonymous bool

	// Sever cuts d off from the store, which lives on, in such a way that nothing tells either
	// of them. Heal ends it.
	Sever func(t *testing.T, d driver.Driver) (heal func())

	// Stall holds back what d and the store send to each other on the connections that they have.
	// New connections work. Deliver delivers it late, even if its sender has closed the
	// connection meanwhile.
	Stall func(t *testing.T, d driver.Driver) (deliver func())

	// Kill makes another process acquire req, which is free, and returns when that process has
	// it. The process renews the lease until kill ends it without a chance to clean up, as kill
	// -9 does.
	Kill func(t *testing.T, req driver.Request) (kill func())

	// Restart stops the store and starts it again. Drivers opened before are not used
	// afterwards.
	Restart func(t *testing.T)

	// Empty has ways in which somebody deletes all locks from the store, by their names. The store
	// and its drivers run on.
	Empty map[string]func(t *testing.T)

	// Bubble runs each case in a bubble of testing/synctest, with fake time. Everything that a
	// driver uses must then be made in the bubble, so such a harness sets Fresh.
	Bubble bool

	// Fresh, if set, returns the harness for one case. It is called when the case begins,
	// inside its bubble if there is one; all fields but Bubble and Fresh are then taken from
	// its result.
	Fresh func(t *testing.T) Harness
}

// Run runs all clauses against a backend.
func Run(t *testing.T, h Harness) {
	for _, c := range clauses() {
		t.Run(c.name, func(t *testing.T) {
			var skipped string
			if h.Bubble {
				synctest.Test(t, func(t *testing.T) { c.runTrial(t, t, h, &skipped) })
			} else {
				c.runTrial(t, t, h, &skipped)
			}
			if skipped != "" { // in a bubble, the skip of the inner T does not show
				t.Skip(skipped)
			}
		})
	}
}

// A clause is one sentence of the contract.
type clause struct {
	name string // Group/Name
	// Printed when it fails: what goes wrong for users of a driver that breaks it.
	why  string
	gate gate // nil means that the clause applies to every driver
	run  func(t *trial)
}

// A gate returns why a clause does not apply to a driver, or "" if it applies.
type gate func(driver.Info, Harness) string

// clauses returns all clauses in the order in which they are run: the later ones rely on what
// the earlier ones check.
func clauses() []clause {
	var all []clause
	for _, group := range [][]clause{
		infoClauses(), exclusionClauses(), nameClauses(), tryClauses(),
		waitClauses(), cancelClauses(), fairClauses(), closeClauses(),
		leaseClauses(), renewClauses(), releaseClauses(), sessionClauses(),
		fencingClauses(), sharedClauses(), slotsClauses(), minHoldClauses(), wantedClauses(),
		answerClauses(), severClauses(), stallClauses(), inspectClauses(), breakClauses(), withdrawClauses(), holderClauses(),
		grantClauses(), emptyClauses(),
		churnClauses(),
	} {
		all = append(all, group...)
	}
	return all
}

// gated returns the clauses behind another gate.
func gated(g gate, all []clause) []clause {
	for i := range all {
		all[i].gate = needs(g, all[i].gate)
	}
	return all
}

// needs returns a gate that is open if all gates are; nil is one. The first gate that is shut gives
// the reason.
func needs(gates ...gate) gate {
	return func(info driver.Info, h Harness) string {
		for _, g := range gates {
			if g == nil {
				continue
			}
			if why := g(info, h); why != "" {
				return why
			}
		}
		return ""
	}
}

// when returns a gate that is open if a condition holds, and else gives why as the reason.
func when(open func(driver.Info, Harness) bool, why string) gate {
	return func(info driver.Info, h Harness) string {
		if open(info, h) {
			return ""
		}
		return why
	}
}

func leaseTenure() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.Tenure == driver.TenureLease },
		"the tenure is a session: leases do not lapse one by one")
}

func sessionTenure() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.Tenure == driver.TenureSession },
		"the tenure is a lease: there is no session to lose")
}

func outlivesConnection() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.Tenure == driver.TenureLease || i.SessionTTL > 0 },
		"a session may end with its connection")
}

func fencing() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.Fencing > driver.FencingNone },
		"the driver has no fencing tokens")
}

func renewsAll() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.RenewsAll }, "the driver renews leases one by one")
}

func shared() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.Shared }, "the driver has no shared locks")
}

func manyHolders() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.Shared || i.Slots }, "the driver has locks of one holder only")
}

func slots() gate {
	return when(func(i driver.Info, _ Harness) bool { return i.Slots }, "the driver has no semaphores")
}

func named() gate {
	return when(func(_ driver.Info, h Harness) bool { return !h.Anonymous }, "the store does not know who holds a lock")
}

func canSever() gate {
	return when(func(_ driver.Info, h Harness) bool { return h.Sever != nil }, "the harness can't sever")
}

func canKill() gate {
	return when(func(_ driver.Info, h Harness) bool { return h.Kill != nil }, "the harness can't kill")
}
