// Package otelmetrics tells OpenTelemetry what happens to locks: [Metrics] and [Spans] are each a [snib.Trace].
//
//	metrics, err := otelmetrics.Metrics(otel.GetMeterProvider(), otelmetrics.Options{})
//	if err != nil {
//		return err
//	}
//	spans, err := otelmetrics.Spans(otel.GetTracerProvider())
//	if err != nil {
//		return err
//	}
//	locker, err := snib.New(d, snib.Tracing(metrics), snib.Tracing(spans))
//
// The metrics are those of package metrics, for Prometheus, under names that OpenTelemetry's translation turns into the same ones, so
// that its dashboard and alert rules serve both: "distributed_lock.wait" in seconds becomes distributed_lock_wait_seconds.
// docs/metrics.md has them all. What a survey of the store tells is there for Prometheus only.
//
// The package depends on OpenTelemetry's API and not on its SDK; without a provider of one, it does nothing.
package otelmetrics
