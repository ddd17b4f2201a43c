// Package oteltrace reports what becomes of each Acquire to OpenTelemetry, as a span:
//
//	trace, err := oteltrace.Spans(otel.GetTracerProvider())
//	if err != nil {
//		return err
//	}
//	locker, err := snib.New(d, snib.Tracing(trace))
//
// The package depends on OpenTelemetry's API and not on its SDK. Without a provider from an SDK, it
// has no effect.
package oteltrace

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/metriclabel"
)

// Spans returns a Trace that creates a span "snib.acquire" for each Acquire, a child of the span in
// its context. Pass it to each Locker once. A nil p is a [snib.ErrInvalid].
//
// A span has the attributes snib.lock, snib.backend and, if there is a fencing token, snib.fence.
// That of an Acquire that failed has snib.reason, and the status Error for what the alert
// LockFailures counts.
func Spans(p trace.TracerProvider) (*snib.Trace, error) {
	if p == nil {
		return nil, fmt.Errorf("oteltrace: %w: the TracerProvider is nil", snib.ErrInvalid)
	}
	tracer := p.Tracer("github.com/sniblock/snib/metrics/oteltrace")
	return &snib.Trace{WaitEnded: func(e snib.WaitEndedEvent) { recordAcquire(tracer, &e) }}, nil
}

// recordAcquire creates the span of an Acquire that has just ended.
func recordAcquire(tracer trace.Tracer, e *snib.WaitEndedEvent) {
	end := time.Now()
	_, span := tracer.Start(e.Context, "snib.acquire", trace.WithTimestamp(end.Add(-e.Waited)),
		trace.WithAttributes(attribute.String("snib.lock", e.Name), attribute.String("snib.backend", e.Backend)))
	if e.Token != 0 { // tokens stay below 2^63 for centuries
		span.SetAttributes(attribute.Int64("snib.fence", int64(e.Token)))
	}
	if e.Err != nil {
		why := metriclabel.ReasonOf(e.Context, e.Err)
		span.SetAttributes(attribute.String("snib.reason", why.String()))
		switch why {
		case metriclabel.Invalid, metriclabel.Regressed, metriclabel.Backend: // what LockFailures counts
			span.SetStatus(codes.Error, e.Err.Error())
		}
	}
	span.End(trace.WithTimestamp(end))
}
