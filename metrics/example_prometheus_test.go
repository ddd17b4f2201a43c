package metrics_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

// A program counts what it does with locks.
func Example_prometheus() {
	d := memlock.New()
	run := func(ctx context.Context) error {
		collector, err := metrics.New(metrics.Options{})
		if err != nil {
			return err
		}
		prometheus.MustRegister(collector)
		locker, err := snib.New(d, snib.Tracing(collector.Trace()), snib.Logging(slog.Default()))
		if err != nil {
			return err
		}
		defer locker.Close()
		return locker.Do(ctx, "report", func(context.Context, *snib.Lock) error { return nil })
	}
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(holdCount(prometheus.DefaultGatherer), "hold")
	// Output:
	// 1 hold
}

// holdCount returns how many holds the histogram of their durations has counted.
func holdCount(from prometheus.Gatherer) uint64 {
	families, _ := from.Gather()
	for _, f := range families {
		if f.GetName() == "distributed_lock_hold_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return 0
}
