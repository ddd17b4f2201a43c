// Package otelmetrics reports events of locks to OpenTelemetry: [Metrics] and
// [Spans] each return a [snib.Trace].
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
// The metrics are those of package metrics. OpenTelemetry's translation to Prometheus turns
// their names into the same ones, so the dashboard and the alert rules serve both:
// "distributed_lock.wait" in seconds becomes distributed_lock_wait_seconds. docs/metrics.md
// lists them all. The metrics of a survey exist for Prometheus only.
//
// The package depends on OpenTelemetry's API and not on its SDK. Without a provider
// from an SDK, it has no effect.
package otelmetrics
