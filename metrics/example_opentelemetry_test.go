package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	otelbridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

// A reader of OpenTelemetry takes the metrics from the registry, under the names that they have
// there.
func Example_openTelemetry() {
	collector, err := metrics.New(metrics.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	bridge := metric.WithProducer(otelbridge.NewMetricProducer(otelbridge.WithGatherer(registry)))
	reader := metric.NewManualReader(bridge) // in a program metric.NewPeriodicReader(exporter, bridge)
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	defer provider.Shutdown(context.Background())

	locker, err := snib.New(memlock.New(), snib.Tracing(collector.Trace()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	if err := locker.Do(context.Background(), "report", func(context.Context, *snib.Lock) error { return nil }); err != nil {
		fmt.Println(err)
		return
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if holds, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "distributed_lock_hold_seconds" {
			fmt.Println(m.Name, holds.DataPoints[0].Count)
		}
	}
	// Output:
	// distributed_lock_hold_seconds 1
}
