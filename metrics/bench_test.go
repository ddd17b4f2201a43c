package metrics_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

// BenchmarkCost measures what the collector adds to an uncontended cycle in memory, the
// fastest there is, in percent of the time without a Trace.
//
// "trace" uses a Trace of empty functions: it shows the core's share of the cost. "again" has
// no Trace: it shows the noise of the measurement.
func BenchmarkCost(b *testing.B) {
	empty := &snib.Trace{
		WaitStarted: func(snib.WaitStartedEvent) {}, WaitEnded: func(snib.WaitEndedEvent) {},
		Released: func(snib.ReleasedEvent) {},
	}
	store := new(memlock.Store)
	cycles := func(opts ...snib.Option) func() {
		l := open(b, store.Open(), opts...)
		return func() { cycle(b, l, "invoices/2026-11", 100) }
	}
	compare(b, []variant{
		{name: "off", run: cycles()},
		{name: "again", run: cycles()},
		{name: "trace", run: cycles(snib.Tracing(empty))},
		{name: "collector", run: cycles(snib.Tracing(newCollector(b, metrics.Options{}).Trace()))},
	})
}

// BenchmarkCostShared is BenchmarkCost for two goroutines that have nothing in common but,
// in one of the variants, the collector.
func BenchmarkCostShared(b *testing.B) {
	cycles := func(opts [2][]snib.Option) func() {
		lockers := [2]*snib.Locker{open(b, memlock.New(), opts[0]...), open(b, memlock.New(), opts[1]...)}
		return func() {
			var both sync.WaitGroup
			for i, l := range lockers {
				name := fmt.Sprintf("invoices/%d", i)
				both.Go(func() { cycle(b, l, name, 2000) })
			}
			both.Wait()
		}
	}
	collecting := func() []snib.Option {
		return []snib.Option{snib.Tracing(newCollector(b, metrics.Options{}).Trace())}
	}
	shared := collecting()
	compare(b, []variant{
		{name: "off", run: cycles([2][]snib.Option{})},
		{name: "again", run: cycles([2][]snib.Option{})},
		{name: "own", run: cycles([2][]snib.Option{collecting(), collecting()})},
		{name: "shared", run: cycles([2][]snib.Option{shared, shared})},
	})
}

// BenchmarkEvents measures the collector alone: the three events of a cycle.
func BenchmarkEvents(b *testing.B) {
	t := newCollector(b, metrics.Options{}).Trace()
	e := snib.Event{Name: "invoices/2026-11", Backend: "memory"}
	ctx := b.Context()
	for b.Loop() {
		t.WaitStarted(snib.WaitStartedEvent{Event: e, Context: ctx})
		t.WaitEnded(snib.WaitEndedEvent{Event: e, Context: ctx, Waited: time.Microsecond})
		t.Released(snib.ReleasedEvent{Event: e, Held: time.Microsecond})
	}
}

// A variant is what compare compares.
type variant struct {
	name string
	run  func()
	took []float64 // ns, by round
}

// compare reports what each variant takes more than the first one, in percent. In each round the
// variants run one after the other, each for some milliseconds at most, and each is compared with
// the first one of the same round: over longer times the processor's speed changes. The figures are
// medians over the rounds.
func compare(b *testing.B, variants []variant) {
	for round := 0; b.Loop(); round++ {
		for i := range variants { // the first variant changes from round to round
			v := &variants[(i+round)%len(variants)]
			began := time.Now()
			v.run()
			v.took = append(v.took, float64(time.Since(began)))
		}
	}
	for _, v := range variants[1:] {
		more := make([]float64, len(v.took))
		for i := range more {
			more[i] = 100 * (v.took[i]/variants[0].took[i] - 1)
		}
		slices.Sort(more)
		b.ReportMetric(more[len(more)/2], "%more/"+v.name)
	}
}

// cycle takes and releases a lock n times.
func cycle(b *testing.B, l *snib.Locker, name string, n int) {
	for range n {
		lock, err := l.Acquire(b.Context(), name)
		if err != nil {
			b.Error(err)
			return
		}
		if err := lock.Release(); err != nil {
			b.Error(err)
		}
	}
}
