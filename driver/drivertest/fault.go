package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
)

func answerClauses() []clause {
	return []clause{
		{
			name: "Answer/RenewLost",
			why:  "a renewal whose answer was lost is asked again while there is time",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				f := fault.Wrap(d1, dropFirstAnswer(fault.Renew))
				l := t.acquire(f, t.req("a"))
				t.mustAnswer(t.renew(f, l)[0].Err, fault.ErrInjected, "Renew whose answer is lost")
				t.mustAnswer(t.renew(f, l)[0].Err, nil, "Renew after one whose answer was lost")
				t.mustBeHeld(d2, t.req("b"), "after renewals of which one answer was lost")
			},
		},
		{
			name: "Answer/ReleaseLost",
			why: "a release whose answer was lost has freed the lock; said again it strands nobody, and does not free " +
				"what is a stranger's by then",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				f := fault.Wrap(d1, dropFirstAnswer(fault.Release))
				l := t.acquire(f, t.req("a"))
				t.mustAnswer(l.Release(t.boundedContext()), fault.ErrInjected, "Release whose answer is lost")
				next := t.acquire(d2, t.req("b"))
				if err := l.Release(t.boundedContext()); err != nil && !errors.Is(err, driver.ErrLost) {
					t.Errorf("Release after one whose answer was lost = %v, want nil or ErrLost", err)
				}
				t.mustBeHeld(d3, t.req("c"), "after the release was said again")
				t.mustAnswer(t.renew(d2, next)[0].Err, nil, "Renew after a stranger's release was said again")
			},
		},
	}
}

func dropFirstAnswer(op fault.Op) fault.Plan {
	return fault.Plan{Rules: []fault.Rule{{Op: op, Call: 1, Effect: fault.Drop}}}
}

func severClauses() []clause {
	return gated(canSever(), []clause{
		{
			name: "Sever/HolderKnowsFirst",
			why: "a holder that is cut off has stopped, by its own clock or because it was told, before the store gives " +
				"its lock to another",
			run: holderKnowsFirst,
		},
		{
			name: "Sever/AcquireReturns",
			why: "a caller's deadline is kept to within CancelTimeout, also when the store does not answer; the request " +
				"lapses",
			run: acquireReturns,
		},
		{
			name: "Sever/Unavailable",
			why: "a caller that gives up on a store that does not answer learns that it was the store, and not a holder, that " +
				"made it wait",
			run: severedIsUnavailable,
		},
		{
			name: "Sever/CancelWaiter",
			why: "a waiter whose store hangs returns within CancelTimeout of the end of its context, and is withdrawn when " +
				"the store is back",
			run: cancelWaiter,
		},
		{
			name: "Sever/DeadWaiter",
			why:  "a waiter that is cut off is passed over, or gets the lock and loses it after a TTL: the next one goes on",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				t.startWaiting(d2, t.shortReq("cut off"))
				next := t.startWaiting(d3, t.req("b"))
				t.Cleanup(t.h.Sever(t.T, d2))
				t.release(l)
				t.mustBeGrantedWithin(next, t.h.TTL+waitTimeout)
			},
		},
		returns("Sever/RenewReturns", "Renew returns soon after its context is done: the next try, and the other leases, wait for it",
			nil, func(ctx context.Context, d driver.Driver, l driver.Lease) error {
				return d.Renew(ctx, []driver.Lease{l})[0].Err
			}),
		returns("Sever/RenewAllReturns", "a renewal of all leases asks the store: without an answer, none of them lasts longer",
			renewsAll(), func(ctx context.Context, d driver.Driver, _ driver.Lease) error { return d.Renew(ctx, nil)[0].Err }),
		returns("Sever/HolderReturns", "SetHolder returns soon after its context is done: what people see is not worth a wait",
			nil, func(ctx context.Context, _ driver.Driver, l driver.Lease) error {
				return l.SetHolder(ctx, driver.Holder{Label: "label"})
			}),
		returns("Sever/ReleaseReturns", "Release returns soon after its context is done: a program that shuts down does not hang on a dead store",
			nil, func(ctx context.Context, _ driver.Driver, l driver.Lease) error { return l.Release(ctx) }),
		returns("Sever/StatusReturns", "Status returns soon after its context is done: a readiness probe of a dead store must not hang with it",
			nil, func(ctx context.Context, d driver.Driver, l driver.Lease) error {
				_, err := d.Status(ctx, "any lock")
				return err
			}),
		{
			name: "Sever/Healed",
			why:  "when the network is back the driver works again, and what was lost meanwhile stays lost",
			run:  healed,
		},
	})
}

func stallClauses() []clause {
	return []clause{
		{
			name: "Stall/GivenUp",
			why: "a request that was given up leaves nothing, also if the store executes it after the driver has removed " +
				"what it might leave: else it holds the lock for nobody",
			gate: when(func(_ driver.Info, h Harness) bool { return h.Stall != nil }, "the harness can't stall connections"),
			run:  givenUpLate,
		},
	}
}

// givenUpLate gives up a request that is on its way, and delivers it when the store has got all
// that the driver could send on other connections. The cause looks like a refusal, as that of an
// errgroup may if another lock is held.
func givenUpLate(t *trial) {
	d1, d2 := t.open(), t.open()
	t.release(t.acquire(d1, t.req("a"))) // the driver has its connections
	bounded := func() (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(t.ctx, 5*t.wakeLimit(), driver.ErrHeld)
	}
	deliver := t.h.Stall(t.T, d1)
	ctx, cancel := bounded()
	defer cancel()
	_ = t.mustFail(t.startAcquireWith(ctx, d1, t.req("given up")))
	for i := range 3 { // a driver that gets a new connection removes the request before this
		other := t.req("on a new connection")
		other.Name = t.name(fmt.Sprint("other lock ", i))
		ctx, cancel := bounded()
		t.waitReturned(t.startAcquireWith(ctx, d1, other), 2*waitTimeout)
		cancel()
	}
	deliver()
	for began := time.Now(); time.Since(began) < 5*t.wakeLimit() && len(t.status(d2).Holders) == 0; {
		t.sleep(t.pause())
	}
	t.eventually("free lock after a request that was given up was executed", waitTimeout+t.slack(),
		func() error { return t.checkFree(d2) })
}

// acquireReturns starts a few requests that end by their contexts, the first one on a
// connection that is not made yet. The least lateness counts: a busy machine is late now and
// then, a driver that waits is late each time. If all requests were late so far, there are some
// more, up to maxRounds.
func acquireReturns(t *trial) {
	d1, d2 := t.open(), t.open()
	t.Cleanup(t.h.Sever(t.T, d1))
	var lateness []time.Duration
	for i := 0; i < 5 || i < maxRounds && slices.Min(lateness) > driver.CancelTimeout; i++ {
		t.lockName = t.name(fmt.Sprint("lock ", i))
		t.release(t.acquire(d2, t.req("earlier")))
		ctx, cancel := context.WithTimeoutCause(t.ctx, t.wakeLimit(), errGone)
		w := t.startAcquireWith(ctx, d1, t.shortReq("a"))
		<-ctx.Done()
		ended := time.Now()
		_ = t.mustFail(w) // another clause checks the error
		cancel()
		lateness = append(lateness, w.returnedTime.Sub(ended))
	}
	if least := slices.Min(lateness); least > driver.CancelTimeout {
		t.Errorf("Acquire returned %v after its contexts were done, want at most %v", lateness, driver.CancelTimeout)
	}
	t.acquireByPolling(d2, t.req("b"), t.h.TTL+waitTimeout)
}

// severedIsUnavailable gives up on a store that has granted before, and then hangs.
func severedIsUnavailable(t *trial) {
	d1, req := t.open(), t.shortReq("a")
	var toldHeld atomic.Bool
	req.OnWait = func(err error) {
		if err == nil {
			toldHeld.Store(true)
		} else if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, errGone) {
			t.Errorf("OnWait(%v) was called; want an error that matches ErrUnavailable, and no context", err)
		}
	}
	t.release(t.acquire(d1, t.req("earlier")))
	t.Cleanup(t.h.Sever(t.T, d1))
	ctx, cancel := context.WithTimeoutCause(t.ctx, 5*t.wakeLimit(), errGone)
	defer cancel()
	err := t.mustFail(t.startAcquireWith(ctx, d1, req))
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) || !errors.Is(err, errGone) {
		t.Errorf("Acquire = %v, want an error that matches ErrUnavailable and the cause of the context, and not ErrHeld", err)
	}
	if toldHeld.Load() {
		t.Errorf("OnWait(nil) was called: a store that did not answer has not said that the lock is held")
	}
}

// maxRounds is how often a case that counts the least lateness tries on a busy machine.
const maxRounds = 15

// cancelWaiter cancels waiters in the queue of a store that hangs.
func cancelWaiter(t *trial) {
	d2 := t.open()
	var lateness []time.Duration
	for i := 0; i < 3 || i < maxRounds && slices.Min(lateness) > driver.CancelTimeout; i++ {
		t.lockName = t.name(fmt.Sprint("lock ", i))
		d1 := t.open()
		l := t.acquire(d2, t.req("a"))
		w := t.startWaiting(d1, t.shortReq("b"))
		heal := t.h.Sever(t.T, d1)
		ended := time.Now()
		w.cancel(errGone)
		_ = t.mustFail(w)
		lateness = append(lateness, w.returnedTime.Sub(ended))
		heal()
		t.release(l)
		t.acquireByPolling(d2, t.req("c"), t.h.TTL+waitTimeout)
	}
	if least := slices.Min(lateness); least > driver.CancelTimeout {
		t.Errorf("waits returned %v after their contexts were done, want at most %v", lateness, driver.CancelTimeout)
	}
}

func holderKnowsFirst(t *trial) {
	d1, d2 := t.open(), t.open()
	var req driver.Request
	var losses <-chan error
	var l driver.Lease
	var renewed driver.Renewal
	t.rounds(func() bool {
		req = t.shortReq("a")
		losses = recordLosses(&req)
		l = t.acquire(d1, req)
		renewed = t.renew(d1, l)[0]
		return renewed.Err == nil
	})
	end := renewed.Start.Add(leaseLength(l, req))
	t.Cleanup(t.h.Sever(t.T, d1))
	_, at := t.acquireByPolling(d2, t.req("b"), leaseLength(l, req)+waitTimeout)
	select {
	case err := <-losses: // before, or in the same moment
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("OnLost was called with %v, want ErrLost", err)
		}
	default:
		if early := end.Left(at); early > maxRounding {
			t.Errorf("granted to another %v before the end of a lease whose holder is cut off, and was not told", early)
		}
	}
}

// returns is the clause that a call on a lease returns soon after its context is done, with the
// store out of reach.
func returns(name, why string, g gate, call func(context.Context, driver.Driver, driver.Lease) error) clause {
	return clause{name: name, why: why, gate: g, run: func(t *trial) {
		d := t.open()
		l := t.acquire(d, t.req("a"))
		t.Cleanup(t.h.Sever(t.T, d))
		ctx, cancel := context.WithTimeoutCause(t.ctx, t.wakeLimit(), errGone)
		defer cancel()
		start := time.Now()
		answer := make(chan error, 1)
		t.running.Go(func() { answer <- call(ctx, d, l) })
		err, ok := await(t, answer, waitTimeout)
		switch late := time.Since(start) - t.wakeLimit(); {
		case !ok:
			t.Errorf("the call did not return within %v after its context was done", late)
		case late > t.slack():
			t.Errorf("the call returned %v after its context was done", late)
		case err == nil:
			t.Errorf("the call without a store = nil, want an error")
		}
	}}
}

func healed(t *trial) {
	d1, d2 := t.open(), t.open()
	req := t.shortReq("a")
	l := t.acquire(d1, req)
	heal := t.h.Sever(t.T, d1)
	next, _ := t.acquireByPolling(d2, t.req("b"), leaseLength(l, req)+waitTimeout)
	heal()
	// A driver may need a moment, and a failed call or two, to notice that the store is back.
	again := t.req("c")
	again.Name = t.name("after the cut")
	t.eventually("lease after the cut", waitTimeout, func() error {
		w := t.startAcquire(d1, again)
		t.waitReturned(w, waitTimeout)
		return w.err
	})
	t.eventually("ErrLost from Renew after the cut", waitTimeout, func() error {
		got := t.renew(d1, l)[0]
		switch {
		case got.Err == nil:
			t.Fatalf("Renew after the cut revived a lease that another holds")
		case !errors.Is(got.Err, driver.ErrLost):
			return got.Err
		}
		return nil
	})
	t.mustAnswer(t.renew(d2, next)[0].Err, nil, "Renew by the present holder")
}

// noSecret provokes errors and searches them for the secret.
func noSecret(t *trial) {
	d1, d2 := t.open(), t.open()
	var all []error
	l := t.acquire(d1, t.req("a"))
	_, err := t.tryAcquire(d2, t.req("b"))
	all = append(all, err)
	if t.info.Slots {
		_, err := t.tryAcquire(d2, t.slotReq("c", 3))
		all = append(all, err)
	}
	w := t.startWaiting(d2, t.req("d"))
	w.cancel(errGone)
	all = append(all, t.mustFail(w))
	t.release(l)
	all = append(all, t.renew(d1, l)[0].Err, d2.Break(t.boundedContext(), t.lockName, "nobody"))
	if t.h.Sever != nil {
		heal := t.h.Sever(t.T, d1)
		ctx, cancel := context.WithTimeoutCause(t.ctx, t.wakeLimit(), errGone)
		all = append(all, t.mustFail(t.startAcquireWith(ctx, d1, t.req("e"))))
		cancel()
		heal()
	}
	all = append(all, d2.Close(), t.mustFail(t.startAcquire(d2, t.req("f"))))
	for _, err := range all {
		if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), t.h.Secret) {
			t.Errorf("an error contains the secret of the configuration: %q",
				strings.ReplaceAll(err.Error(), t.h.Secret, "SECRET"))
		}
	}
}
