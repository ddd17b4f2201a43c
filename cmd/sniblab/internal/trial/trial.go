package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
)

// names are those of the clients.
var names = [...]string{"A", "B", "C"}

// lockName is the name of the lock in histories, and the begin of that in the store.
const lockName = "lab"

// faultsPerTrial is the number of faults of a trial, and controlFaults that of a control's.
const (
	faultsPerTrial = 4
	controlFaults  = 2
)

// handOvers is how many hand-overs, as long as those before the first fault, the wait for a grant
// after the last fault is extended by.
const handOvers = 10

// A trial is one run of a target, of a few seconds.
type trial struct {
	t        testing.TB
	c        Target
	store    *store
	schedule []step
	seed     uint64

	director *servers.Director

	began   driver.Instant
	waited  time.Duration // for somebody to get the lock after the last fault
	clients []*client
	over    chan struct{} // closed when clients are to release what they hold, and end
	stop    context.CancelCauseFunc

	mu      sync.Mutex
	events  []history.Event
	granted int
	latest  int64 // when the latest grant came

	brisk atomic.Bool // holds and the pauses between them are shorter still: see briskWork
}

// isBrisk reports whether the lock changes hands as often as it can during the faults of a trial:
// that is so in every other one. A control has the pace that its pattern needs to fail.
func (b *trial) isBrisk() bool { return !b.c.IsControl() && b.c.Work == 0 && b.seed%2 == 1 }

// run runs a trial, and returns its events.
func (b *trial) run(ctx context.Context) ([]history.Event, error) {
	ctx, b.stop = context.WithCancelCause(ctx)
	defer b.stop(nil)
	if err := b.store.empty(ctx); err != nil {
		return nil, err
	}
	b.began, b.over = driver.Now(), make(chan struct{})
	b.director = &servers.Director{Set: b.store.Set, TTL: TTL, Record: b.log}
	defer func() {
		for _, c := range b.clients {
			c.kill()
		}
	}()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	for _, c := range b.clients {
		running.Go(func() { c.run(ctx) })
	}
	b.direct(ctx)
	close(b.over)
	late := time.AfterFunc(bound, func() { b.stop(nil) }) // whoever does not answer now is unknown
	running.Wait()
	late.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := context.Cause(ctx); err != nil && err != context.Canceled { //nolint:errorlint // it is what stop was given
		return nil, err
	}
	return slices.Clone(b.events), nil
}

// start starts the clients.
func (b *trial) start(ctx context.Context) error {
	for i, name := range names {
		c := b.newClient(i, name)
		if b.c.Together && i > 0 {
			c.shared = b.clients[0]
		}
		b.clients = append(b.clients, c)
	}
	errs := make([]error, len(b.clients))
	var starting sync.WaitGroup
	for i, c := range b.clients {
		if c.shared == nil {
			starting.Go(func() { errs[i] = c.start(ctx) })
		}
	}
	starting.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// newClient returns a client with a number of its own, which is not started yet.
func (b *trial) newClient(number int, name string) *client {
	return &client{
		b: b, number: number, name: name, rng: rand.New(rand.NewPCG(b.seed, uint64(number)+1)),
		answers: make(chan answer, 100), visits: make(chan *visit, 1),
	}
}

// A step is one fault of a schedule. Its number chooses what is random about it.
type step struct {
	fault  servers.Fault
	client int // the number of the victim
	number uint32
}

// newSchedule chooses the faults of a trial by its seed.
func newSchedule(c Target, among []servers.Fault, seed uint64) []step {
	n := faultsPerTrial
	if c.IsControl() {
		n = controlFaults
	}
	if len(among) == 0 { // the work itself is the schedule
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	next, schedule := servers.Schedule(rng, among), make([]step, n)
	for i := range schedule {
		schedule[i] = step{next(), rng.IntN(len(names)), rng.Uint32()}
	}
	return schedule
}

// direct does the faults, and waits until somebody gets the lock after the last one.
func (b *trial) direct(ctx context.Context) {
	b.await(ctx, 3*TTL+b.c.Settle, func() bool { return b.grants() > 0 })
	healthy := b.await(ctx, 3*TTL, func() bool { return b.grants() > 2*len(names) })
	b.brisk.Store(b.isBrisk())
	if len(b.schedule) == 0 { // the work itself is the schedule
		b.wait(ctx, 2*b.c.Work)
	}
	for _, step := range b.schedule {
		if ctx.Err() != nil {
			break
		}
		rng := rand.New(rand.NewPCG(uint64(step.number), 0))
		b.store.reviveAny()
		b.strike(ctx, step.fault, b.clients[step.client], rng)
		b.wait(ctx, time.Duration(100+rng.IntN(200))*time.Millisecond)
		if b.isBrisk() {
			b.wait(ctx, TTL)
		}
	}
	b.store.reviveAny()
	b.store.heal()
	healed := b.now()
	b.log(history.Event{Kind: history.Heal, At: healed})
	b.waited = b.awaitGrant(ctx, healed, bound+b.c.Settle+handOvers*healthy/time.Duration(2*len(names)))
}

// awaitGrant waits until somebody has got the lock after a moment, for at most d. Time in which the
// machine was late does not count. awaitGrant returns how long it has waited in all.
//
// A grant counts by when it came, not by when it was recorded: a busy machine may stop us in
// between.
func (b *trial) awaitGrant(ctx context.Context, after int64, d time.Duration) time.Duration {
	const tick = 20 * time.Millisecond
	for counted := time.Duration(0); counted < d && b.latestGrant() <= after && ctx.Err() == nil; {
		b.store.reviveAny()
		took := b.await(ctx, tick, func() bool { return b.latestGrant() > after })
		counted += min(took, tick)
	}
	return time.Duration(b.now() - after)
}

// await waits until ok returns true, for at most d. It returns how long it has waited.
func (b *trial) await(ctx context.Context, d time.Duration, ok func() bool) time.Duration {
	began := time.Now()
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			return time.Since(began)
		case <-ctx.Done():
			return time.Since(began)
		}
	}
	return time.Since(began)
}

// now returns the time since the begin of the trial, by CLOCK_BOOTTIME.
func (b *trial) now() int64 { return int64(driver.Now().Sub(b.began)) }

// log records an event, which happened now if it has no time.
func (b *trial) log(e history.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.At == 0 {
		e.At = b.now()
	}
	if e.Kind == history.Acquired {
		b.granted++
		b.latest = max(b.latest, e.At)
	}
	b.events = append(b.events, e)
}

func (b *trial) grants() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.granted
}

func (b *trial) latestGrant() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latest
}

// failf ends the trial with an error.
func (b *trial) failf(format string, args ...any) { b.stop(fmt.Errorf(format, args...)) }
