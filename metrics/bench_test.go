package metrics_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

// What the collector adds to an uncontended cycle in memory, the fastest there is: in percent of its time without. The two are
// measured by turns of a few milliseconds, whose medians are compared, because the processor's speed changes between longer ones.
//
// "trace" is the same for a Trace of empty functions: what of it is the core's, mostly for the clock.
func BenchmarkCost(b *testing.B) {
	empty := func(snib.Event) {}
	traces := map[string]*snib.Trace{
		"collector": newCollector(b, metrics.Options{}).Trace(),
		"trace":     {WaitStarted: empty, WaitEnded: empty, Released: empty},
	}
	for name, trace := range traces {
		b.Run(name, func(b *testing.B) {
			store := new(memlock.Store)
			off, on := open(b, store.Open()), open(b, store.Open(), snib.Tracing(trace))
			var without, with []time.Duration
			for b.Loop() {
				without, with = append(without, cycles(b, off)), append(with, cycles(b, on))
			}
			before, after := median(without), median(with)
			b.ReportMetric(float64(before)/turn, "ns/off")
			b.ReportMetric(float64(after)/turn, "ns/on")
			b.ReportMetric(100*float64(after-before)/float64(before), "%more")
		})
	}
}

// turn is the number of cycles between two changes.
const turn = 100

// cycles is the time of a turn.
func cycles(b *testing.B, l *snib.Locker) time.Duration {
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
	return time.Since(began)
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}
