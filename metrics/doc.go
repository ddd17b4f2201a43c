// Package metrics is a Prometheus collector over [snib.Trace].
//
//	collector, err := metrics.New(metrics.Options{})
//	if err != nil {
//		return err
//	}
//	prometheus.MustRegister(collector)
//	locker, err := snib.New(d, snib.Tracing(collector.Trace()))
//
// docs/metrics.md leads to all metrics and says what to check when something is wrong. Beside
// this package are alert rules (alerts.yml), a dashboard (grafana/snib.json) and an example
// that provisions both. OpenTelemetry's bridge exports the metrics under the same names.
//
// # Resources
//
// A lock's name is not a label: a million names would be tens of millions of time series. The
// label "resource" is a class of names, computed by [Options].Resource. There are at most
// [Options].MaxResources classes; the names of further ones are counted together as "other".
package metrics
