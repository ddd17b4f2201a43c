package metrics_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

// BenchmarkCost measures what the collector adds to an uncontended cycle in memory, the
// fastest there is, in percent of the time without a Trace. In each round the variants run
// one after the other, each for less than a millisecond, and each is compared with the
// variant without a Trace of the same round: over longer times the processor's speed changes.
// The figures are medians over the rounds.
//
// "trace" uses a Trace of empty functions: it shows the core's share of the cost. "again" has
// no Trace: it shows the noise of the measurement.
func BenchmarkCost(b *testing.B) {
	empty := &snib.Trace{
		WaitStarted: func(snib.WaitStartedEvent) {}, WaitEnded: func(snib.WaitEndedEvent) {}, Released: func(snib.ReleasedEvent) {},
	}
	store := new(memlock.Store)
	variants := []struct {
		name   string
		locker *snib.Locker
		took   []float64 // ns for a cycle, by round
	}{
		{name: "off", locker: open(b, store.Open())},
		{name: "again", locker: open(b, store.Open())},
		{name: "trace", locker: open(b, store.Open(), snib.Tracing(empty))},
		{name: "collector", locker: open(b, store.Open(), snib.Tracing(newCollector(b, metrics.Options{}).Trace()))},
	}
	for round := 0; b.Loop(); round++ {
		for i := range variants { // the first variant changes from round to round
			v := &variants[(i+round)%len(variants)]
			v.took = append(v.took, cycleTime(b, v.locker))
		}
	}
	off := variants[0].took
	b.ReportMetric(median(off), "ns/off")
	for _, v := range variants[1:] {
		more := make([]float64, len(off))
		for i := range off {
			more[i] = 100 * (v.took[i]/off[i] - 1)
		}
		b.ReportMetric(median(more), "%more/"+v.name)
	}
}

// cycleTime returns the mean time of a cycle in nanoseconds.
func cycleTime(b *testing.B, l *snib.Locker) float64 {
	const perTurn = 100
	ctx, began := b.Context(), time.Now()
	for range perTurn {
		lock, err := l.Acquire(ctx, "invoices/2026-11")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Release(); err != nil {
			b.Fatal(err)
		}
	}
	return float64(time.Since(began)) / perTurn
}

// median returns the median and does not change its argument.
func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
