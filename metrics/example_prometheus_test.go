package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
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
	fmt.Println(gather(prometheus.DefaultGatherer, "distributed_lock_hold_seconds"), "hold")
	// Output:
	// 1 hold
}

// gather returns the number of the first metric with that name: how many values a histogram has, or
// the value of a gauge. Without such a metric it returns -1.
func gather(from prometheus.Gatherer, name string) float64 {
	families, err := from.Gather()
	if err != nil {
		return -1
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			return float64(h.GetSampleCount())
		}
		return f.GetMetric()[0].GetGauge().GetValue()
	}
	return -1
}

// A redisDriver stands for a *redislock.Driver, so that this module needs no Redis.
type redisDriver struct{ *memlock.Driver }

type redisAdmin struct{}

func (redisDriver) Admin() redisAdmin { return redisAdmin{} }

func (redisAdmin) Foreign(_ context.Context, prefix string, yield func(driver.Status) bool) error {
	yield(driver.Status{Name: prefix + "order", Holders: []driver.Holding{{Left: driver.NoExpiry}}})
	return nil
}

// One process also counts the locks of a whole store, those of other libraries included.
func Example_survey() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	d := redisDriver{memlock.New()}
	collector, err := metrics.New(metrics.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	go collector.Survey(ctx, d, time.Minute, metrics.Listing{Prefix: "lock:", List: d.Admin().Foreign})
	endless := -1.0
	for endless < 0 {
		runtime.Gosched() // until the first survey has ended
		endless = gather(registry, "distributed_lock_store_locks_without_expiry")
	}
	fmt.Println(endless, "lock without an end")
	// Output:
	// 1 lock without an end
}
