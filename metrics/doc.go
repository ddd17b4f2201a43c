// Package metrics is a Prometheus collector over [snib.Trace].
//
//	collector, err := metrics.New(metrics.Options{})
//	if err != nil {
//		return err
//	}
//	prometheus.MustRegister(collector)
//	locker, err := snib.New(d, snib.Tracing(collector.Trace()))
//
// All that it exports is listed in docs/metrics.md, with what to look at when something is wrong. Beside this package are alert
// rules (alerts.yml), a dashboard (grafana/snib.json) and an example that provisions both. Package otelmetrics, a module of its
// own, tells OpenTelemetry the same under the same names.
//
// # Resources
//
// A lock's name is no label: a million names would be tens of millions of time series. The label "resource" is a class of
// names, made by [Options].Resource, and there are at most [Options].MaxResources of them; the names of further ones are counted
// together as [Other].
//
// # Cost
//
// Each hold costs a few atomic additions and no allocation; docs/metrics.md has figures. What is
// read from several counters when Prometheus scrapes can be apart by what happened meanwhile.
package metrics
