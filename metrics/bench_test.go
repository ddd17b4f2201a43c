package metrics_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

// What the collector adds to an uncontended cycle in memory, the fastest there is: in percent of its time without. In each round the
// variants have a turn of less than a millisecond each, one after the other, and each is compared with the one without a Trace of the same round:
// between longer turns the processor's speed changes. The figures are medians over the rounds.
//
// "trace" is the same for a Trace of empty functions: what of it is the core's. "again" is without a Trace once more, and so what can't be told
// apart.
func BenchmarkCost(b *testing.B) {
	empty := func(snib.Event) {}
	store := new(memlock.Store)
	variants := []struct {
		name   string
		locker *snib.Locker
		took   []float64 // ns for a cycle, by round
	}{
		{name: "off", locker: open(b, store.Open())},
		{name: "again", locker: open(b, store.Open())},
		{name: "trace", locker: open(b, store.Open(), snib.Tracing(&snib.Trace{WaitStarted: empty, WaitEnded: empty, Released: empty}))},
		{name: "collector", locker: open(b, store.Open(), snib.Tracing(newCollector(b, metrics.Options{}).Trace()))},
	}
	for round := 0; b.Loop(); round++ {
		for i := range variants { // who begins changes
			v := &variants[(i+round)%len(variants)]
			v.took = append(v.took, cycles(b, v.locker))
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

// cycles is the time of a cycle, in nanoseconds, over a turn of so many.
func cycles(b *testing.B, l *snib.Locker) float64 {
	const turn = 100
	ctx, began := b.Context(), time.Now()
	for range turn {
		lock, err := l.Acquire(ctx, "invoices/2026-11")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Release(); err != nil {
			b.Fatal(err)
		}
	}
	return float64(time.Since(began)) / turn
}

// median leaves what it is given as it is.
func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
