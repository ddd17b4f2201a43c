package arena

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
)

// names are those of the clients.
var names = [...]string{"A", "B", "C"}

// lockName is the name of the lock in histories, and the begin of that in the store.
const lockName = "lab"

// faultsPerBout is the number of faults of a bout, and controlFaults that of a control's.
const (
	faultsPerBout = 4
	controlFaults = 2
)

// A bout is one run of a contestant, of a few seconds.
type bout struct {
	t      testing.TB
	c      Contestant
	store  *store
	faults []fault
	seed   uint64

	began   driver.Instant
	clients []*client
	over    chan struct{} // closed when clients are to release what they hold, and end
	stop    context.CancelCauseFunc

	mu      sync.Mutex
	events  []history.Event
	granted int
	ids     int64 // of faults
}

// run runs a bout, and returns its events.
func (b *bout) run(ctx context.Context) ([]history.Event, error) {
	b.store.empty()
	ctx, b.stop = context.WithCancelCause(ctx)
	defer b.stop(nil)
	b.began, b.over = driver.Now(), make(chan struct{})
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
func (b *bout) start(ctx context.Context) error {
	for i, name := range names {
		c := &client{
			b: b, number: i, name: name, rng: rand.New(rand.NewPCG(b.seed, uint64(i)+1)),
			answers: make(chan answer, 100), acts: make(chan act, 1),
		}
		if b.c.Together && i > 0 {
			c.shared = b.clients[0]
			b.clients[0].sharers = append(b.clients[0].sharers, c)
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

// direct does the faults, and waits until somebody gets the lock after the last one.
func (b *bout) direct(ctx context.Context) {
	rng := rand.New(rand.NewPCG(b.seed, 0))
	n := faultsPerBout
	if b.c.IsControl() {
		n = controlFaults
	}
	b.await(ctx, 3*TTL, func() bool { return b.grants() >= 2*len(names) })
	endless := b.store.endless()
	if len(b.faults) == 0 { // the work itself is the schedule
		b.await(ctx, 2*b.c.Work, func() bool { return false })
	}
	for range n {
		if len(b.faults) == 0 || ctx.Err() != nil {
			break
		}
		f := b.faults[rng.IntN(len(b.faults))]
		victim := b.clients[rng.IntN(len(b.clients))]
		f.do(ctx, b, victim, rng)
		b.await(ctx, time.Duration(100+rng.IntN(200))*time.Millisecond, func() bool { return false })
	}
	b.store.heal()
	b.log(history.Event{Kind: history.Heal})
	before := b.grants()
	b.await(ctx, bound, func() bool { return b.grants() > before })
	if extra := b.store.endless() - endless; extra > 0 && ctx.Err() == nil {
		// They may belong to those who hold the lock now, or wait for it.
		b.await(ctx, 2*TTL, func() bool { return b.store.endless() <= endless })
		for range b.store.endless() - endless {
			b.log(history.Event{Kind: history.Left, Name: lockName, Err: "a key without an end"})
		}
	}
}

// await waits until ok returns true, for at most d.
func (b *bout) await(ctx context.Context, d time.Duration, ok func() bool) {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// now returns the time since the begin of the bout, by CLOCK_BOOTTIME.
func (b *bout) now() int64 { return int64(driver.Now().Sub(b.began)) }

// log records an event, which happened now if it has no time.
func (b *bout) log(e history.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.At == 0 {
		e.At = b.now()
	}
	if e.Kind == history.Acquired {
		b.granted++
	}
	b.events = append(b.events, e)
}

func (b *bout) grants() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.granted
}

// begin records the begin of a fault, and returns a function that records its end. worker is the
// process that it affects, or "" for the store and the network.
func (b *bout) begin(name, worker string) (end func()) {
	b.mu.Lock()
	b.ids++
	id := b.ids
	b.mu.Unlock()
	b.log(history.Event{Kind: history.Begin, Fault: name, Worker: worker, ID: id})
	return func() { b.log(history.Event{Kind: history.End, Fault: name, Worker: worker, ID: id}) }
}

// failf ends the bout with an error.
func (b *bout) failf(format string, args ...any) { b.stop(fmt.Errorf(format, args...)) }
