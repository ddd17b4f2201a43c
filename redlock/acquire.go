package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/redislock/rediskit"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

const (
	// heartbeatInterval is the longest time between two rounds of a waiter. Nodes forget a
	// waiter that has been silent for three times as long.
	heartbeatInterval = 5 * time.Second

	// foreignPollInterval is the same behind a foreign client, which does not announce a release.
	foreignPollInterval = 200 * time.Millisecond

	// shortRetryTimeout is how long an acquisition with NoWait retries while there is no majority.
	shortRetryTimeout = time.Second

	// cleanupTimeout is how long a failed round waits until the nodes have freed what it took.
	// Once the context of the acquisition is done, it waits for cancelCleanupTimeout in all.
	// The cleanup itself goes on in the background.
	cleanupTimeout       = 250 * time.Millisecond
	cancelCleanupTimeout = driver.CancelTimeout * 4 / 5

	// splitRetries is how often a request with NoWait retries after a split vote.
	splitRetries = 16
)

// A heldError says that no majority of the nodes is free. It matches [driver.ErrHeld] if another
// client has the lock on a majority. Otherwise it matches [driver.ErrUnavailable]: several clients
// compete for the lock, or nodes that may know more do not answer.
type heldError struct {
	rediskit.HeldError // Left is the time until a majority of the nodes is free

	blocked quorum.Set // the nodes that are not free
	foreign bool       // a majority would be free without the keys of foreign clients

	took time.Duration // that of the round; a millisecond to a second, also if a clock is set meanwhile

	most, silent, nodes int // nodes of the best holder, nodes that may be its own too, and all nodes
}

// isSplit reports whether nobody is known to have a majority.
func (e *heldError) isSplit() bool { return 2*e.most < e.nodes }

// isContended reports whether nobody can have a majority, whatever the silent nodes know.
func (e *heldError) isContended() bool { return 2*(e.most+e.silent) < e.nodes }

func (e *heldError) Error() string {
	switch {
	case e.isContended():
		return fmt.Sprintf("%v: several clients compete for the lock, and none has a majority", driver.ErrUnavailable)
	case e.isSplit():
		return fmt.Sprintf("%v: nobody is known to have a majority: %d of %d nodes are taken, and %d take no part",
			driver.ErrUnavailable, e.most, e.nodes, e.silent)
	}
	return e.HeldError.Error()
}

// Is reports whether target is the error that e matches.
func (e *heldError) Is(target error) bool {
	if e.isSplit() {
		return target == driver.ErrUnavailable
	}
	return target == driver.ErrHeld
}

// An attempt is one call of Acquire. It makes as many rounds as it needs.
type attempt struct {
	d      *Driver
	req    driver.Request
	lock   lock
	topic  *topic // the subscription; nil without one
	watch  *watch // that of the present round, if there is a topic
	splits int    // rounds in a row in which nobody got a majority

	// returnBy is when the attempt must return after ctx is done. It is zero before.
	returnBy driver.Instant
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := d.checkRequest(&req); err != nil {
		return nil, err
	}
	if !d.life.Begin() {
		return nil, driver.ErrClosed
	}
	defer d.life.Finish()
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	a := &attempt{d: d, req: req, lock: lockOf(req.Name)}
	l, err := a.try(ctx)
	if err != nil {
		l, err = a.wait(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// checkRequest rejects a request that the driver can't serve.
func (d *Driver) checkRequest(req *driver.Request) error {
	if err := rediskit.CheckID(req.ID); err != nil {
		return err
	}
	switch {
	case req.Shared, req.Slots > 0:
		return driver.Invalidf("request: Redlock supports neither shared locks nor semaphores")
	case req.TTL < minTTL || req.TTL > d.params.MaxTTL:
		return driver.Invalidf("TTL: %v, want %v to %v", req.TTL, minTTL, d.params.MaxTTL)
	}
	return nil
}

// try makes one round.
func (a *attempt) try(ctx context.Context) (*lease, error) {
	r := a.d.startRound(&a.req, &a.lock, a.topic != nil)
	if r.wait(ctx) == quorum.Won && ctx.Err() == nil {
		return a.leaseFrom(r), nil
	}
	a.awaitCleanup(ctx, r.cleanUp())
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, r.failure()
}

// awaitCleanup waits a moment until the nodes have carried out the cleanup p, which goes on in
// the background afterwards.
func (a *attempt) awaitCleanup(ctx context.Context, p *poll) {
	p.wait(ctx, cleanupTimeout)
	if ctx.Err() == nil {
		return
	}
	if now := driver.Now(); a.returnBy.IsZero() {
		a.returnBy = now.Add(cancelCleanupTimeout)
	}
	p.wait(context.Background(), a.returnBy.Left(driver.Now()))
}

// failure returns the error that says why the round failed.
func (r *round) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := heldError{
		took:  min(max(driver.Now().Sub(r.start), time.Millisecond), time.Second),
		nodes: len(r.d.nodes),
	}
	left := make([]time.Duration, 0, quorum.MaxNodes) // time until each node is free, if known
	holders := make(map[string]int)
	var foreign quorum.Set
	errs := make([]error, len(r.d.nodes))
	for i := range errs {
		switch ans := &r.answers[i]; ans.kind {
		case granted:
			left = append(left, 0)
		case held:
			v := parseValue(ans.value)
			holders[v.nonce]++
			e.most = max(e.most, holders[v.nonce])
			left = append(left, ans.left)
			e.blocked |= 1 << i
			if !v.ours {
				foreign |= 1 << i
			}
		case wrongType:
			errs[i] = ans.err
		case closed, unanswered:
			errs[i] = cmp.Or(ans.err, error(errOverdue))
			e.silent++
		}
	}
	q := r.d.params.Quorum()
	if len(left) < q {
		return r.d.noMajority(errs)
	}
	e.foreign = foreign != 0 && e.blocked.Len()-foreign.Len() < q
	slices.Sort(left)
	if e.Left = left[q-1]; e.Left == driver.NoExpiry {
		e.Left = -1
	}
	return &e
}

// leaseFrom makes the lease of a round that was won.
func (a *attempt) leaseFrom(r *round) *lease {
	r.mu.Lock()
	last, sent := r.target, r.sent
	refused := quorum.Set(0)
	for i := range sent.All() {
		if r.answers[i].kind == held {
			refused |= 1 << i
		}
	}
	r.mu.Unlock()
	if a.topic != nil {
		a.d.removeWaiter(refused, &a.lock, a.req.ID) // the nodes that granted have done so already
	}
	a.d.noteToken(&a.lock, last)
	return newLease(a.d, a.req, a.lock, r, last)
}

// removeWaiter makes the nodes forget that an attempt waits.
func (d *Driver) removeWaiter(nodes quorum.Set, l *lock, id string) *poll {
	forgotten := driver.Now().Add(3 * heartbeatInterval)
	return d.cleanUp(nodes, forgotten, codeRemoveWaiter, l, id)
}

// wait makes further rounds until the lock is granted, ctx is done, or a retry can't help. The
// argument err is why the first round failed.
func (a *attempt) wait(ctx context.Context, err error) (*lease, error) {
	var outage rediskit.Backoff
	for ctx.Err() == nil {
		a.noteWait(err)
		pause, retry := a.nextPause(err, &outage)
		if !retry {
			break
		}
		if _, refused := errors.AsType[*heldError](err); refused && a.topic == nil && !a.req.NoWait {
			a.topic, a.watch = a.d.listener.subscribe(&a.lock)
			defer a.d.listener.unsubscribe(a.topic)
			defer func() { a.topic.stopWatch(a.watch) }()
		}
		a.sleep(ctx, pause, err)
		if ctx.Err() == nil {
			if a.topic != nil {
				a.topic.stopWatch(a.watch)
				a.watch = a.topic.startWatch()
			}
			l, tryErr := a.try(ctx)
			if tryErr == nil {
				return l, nil
			}
			if ctx.Err() == nil { // otherwise the outcome of the round is unknown
				err = tryErr
			}
		}
	}
	if a.topic != nil {
		a.awaitCleanup(ctx, a.d.removeWaiter(a.d.allNodes(), &a.lock, a.req.ID))
	}
	if ctx.Err() == nil {
		return nil, err
	}
	return nil, driverkit.EndOfWait(context.Cause(ctx), err)
}

// noteWait tells the caller why a round failed.
func (a *attempt) noteWait(err error) {
	held, refused := errors.AsType[*heldError](err)
	switch {
	case errors.Is(err, driver.ErrHeld):
		a.req.NoteWait(nil)
	case refused && held.isContended(): // nobody holds it, and soon somebody will
	case errors.Is(err, driver.ErrUnavailable):
		a.req.NoteWait(err)
	}
}

// nextPause returns how long to sleep after a round that failed with err, and whether
// to retry at all.
func (a *attempt) nextPause(err error, outage *rediskit.Backoff) (pause time.Duration, retry bool) {
	held, refused := errors.AsType[*heldError](err)
	noMajority, isOutage := errors.AsType[*noMajorityError](err)
	switch {
	case refused && (held.isContended() || held.isSplit() && a.req.NoWait):
		a.splits++
		spread := min(held.took<<min(a.splits, 6), 100*time.Millisecond)
		return rand.N(spread), !a.req.NoWait || a.splits <= splitRetries
	case refused:
		a.splits = 0
		*outage = rediskit.Backoff{}
		return held.maxSleep(), !a.req.NoWait
	case !errors.Is(err, driver.ErrUnavailable):
		return 0, false
	case isOutage && noMajority.keptOut > 0 && !a.req.NoWait:
		// Retry until the restarted nodes are admitted.
		limit := a.req.RetryLimit() // which may be endless
		_, retry = outage.Next(max(limit, limit+a.d.params.Quarantine()+maxSpread))
		return 50*time.Millisecond + rand.N(50*time.Millisecond), retry
	}
	limit := a.req.RetryLimit()
	if a.req.NoWait {
		limit = shortRetryTimeout
	}
	return outage.Next(limit)
}

// maxSleep returns how long a waiter may sleep if it receives no message. Messages only
// shorten the sleep.
func (e *heldError) maxSleep() time.Duration {
	limit := heartbeatInterval
	if e.foreign {
		limit = foreignPollInterval - rand.N(foreignPollInterval/4)
	}
	if e.Left < 0 {
		return limit
	}
	return min(e.Left+time.Millisecond+rand.N(10*time.Millisecond), limit)
}

// sleep pauses for d. A waiter wakes early when its lock was released on so many nodes that
// a majority is free. If others wake with it, it first pauses for a random time that grows
// with their number.
func (a *attempt) sleep(ctx context.Context, d time.Duration, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var hints <-chan int
	held, refused := errors.AsType[*heldError](err)
	if refused && a.topic != nil {
		hints = a.topic.arm(a.watch, held.blocked)
	}
	for {
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case waiters := <-hints:
			hints = nil
			timer.Reset(rand.N(spreadOf(waiters, held.took) + 1))
		}
	}
}

// spreadOf returns over what time so many waiters begin their rounds, of which one takes so long.
// For one lock, 50 ms are enough. After a reconnection, all waiters of a process wake.
func spreadOf(waiters int, took time.Duration) time.Duration {
	const least, each = 50 * time.Millisecond, 100 * time.Microsecond
	return min(time.Duration(waiters-1)*took, max(least, time.Duration(waiters)*each))
}
