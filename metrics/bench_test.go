package metrics_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

// BenchmarkCost measures an uncontended cycle in memory, the fastest there is: without a Trace,
// with one of empty functions, which shows the core's share of the cost, and with a collector.
func BenchmarkCost(b *testing.B) {
	empty := &snib.Trace{
		WaitStarted: func(snib.WaitStartedEvent) {}, WaitEnded: func(snib.WaitEndedEvent) {},
		Released: func(snib.ReleasedEvent) {},
	}
	for _, bb := range []struct {
		name  string
		trace *snib.Trace
	}{{"off", nil}, {"trace", empty}, {"collector", newCollector(b, metrics.Options{}).Trace()}} {
		b.Run(bb.name, func(b *testing.B) {
			l := open(b, memlock.New(), snib.Tracing(bb.trace))
			for b.Loop() {
				release(b, acquire(b, l, "invoices/2026-11"))
			}
		})
	}
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
