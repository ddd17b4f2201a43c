package otelmetrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/metriclabel"
)

// The names of the spans.
const (
	AcquireSpan = "snib.acquire" // an Acquire, from call to return
	HoldSpan    = "snib.hold"    // a hold, from the return of Acquire to its end
)

// Spans returns a Trace that creates a span for each Acquire and one for each hold. Both are
// children of the span in the context of the Acquire. Pass it to each Locker once, and use a
// separate Trace for each store. A nil p is a [snib.ErrInvalid].
//
// Both have the attributes snib.lock, snib.backend and snib.fence. An Acquire that
// failed has snib.reason, and the status Error unless the lock was merely busy; a hold
// that was lost has snib.loss and the status Error. Release or the loss of a hold ends
// its span; without either, the span never ends. Holds without a fencing token have no
// span, because nothing distinguishes them.
func Spans(p trace.TracerProvider) (*snib.Trace, error) {
	if p == nil {
		return nil, fmt.Errorf("otelmetrics: %w: the TracerProvider is nil", snib.ErrInvalid)
	}
	s := &spans{tracer: p.Tracer(scope)}
	return &snib.Trace{
		WaitEnded: func(e snib.WaitEndedEvent) {
			if e.Err != nil { // otherwise Acquired follows, with the token
				s.recordAcquire(e.Context, e.Event, e.Waited, e.Err)
			}
		},
		Acquired: func(e snib.AcquiredEvent) {
			s.recordAcquire(e.Context, e.Event, e.Waited, nil)
			if !e.Joined && e.Token != 0 {
				s.beginHold(&e)
			}
		},
		Lost:     func(e snib.LostEvent) { s.endHold(e.Event, holdEnd{e.Loss, e.Err}) },
		Released: func(e snib.ReleasedEvent) { s.endHold(e.Event, holdEnd{err: e.Err}) },
	}, nil
}

type spans struct {
	tracer trace.Tracer
	// From holdKey to the trace.Span of a hold, or to the holdEnd of one that ended before
	// Acquired.
	holds sync.Map
}

type holdKey struct {
	name  string
	token uint64
}

// A holdEnd says how a hold ended: it was released if loss is empty.
type holdEnd struct {
	loss snib.Loss
	err  error
}

// recordAcquire creates the span of an Acquire that has just ended.
func (s *spans) recordAcquire(ctx context.Context, e snib.Event, waited time.Duration, err error) {
	end := time.Now()
	_, span := s.tracer.Start(ctx, AcquireSpan, trace.WithTimestamp(end.Add(-waited)),
		trace.WithAttributes(attributes(e)...))
	if err != nil {
		why := metriclabel.ReasonOf(ctx, err)
		span.SetAttributes(attribute.String("snib.reason", why.String()))
		if why != metriclabel.Busy {
			span.SetStatus(codes.Error, err.Error())
		}
	}
	span.End(trace.WithTimestamp(end))
}

// beginHold starts the span of a hold, and ends it at once if the hold has ended already.
func (s *spans) beginHold(e *snib.AcquiredEvent) {
	_, span := s.tracer.Start(e.Context, HoldSpan, trace.WithAttributes(attributes(e.Event)...))
	was, _ := s.holds.LoadOrStore(holdKey{e.Name, e.Token}, span)
	if end, early := was.(holdEnd); early {
		s.holds.Delete(holdKey{e.Name, e.Token})
		finishSpan(span, end)
	}
}

// endHold ends the span of a hold, or stores its end for beginHold if the span has not begun.
func (s *spans) endHold(e snib.Event, end holdEnd) {
	if e.Token == 0 {
		return
	}
	was, _ := s.holds.LoadOrStore(holdKey{e.Name, e.Token}, end)
	if span, begun := was.(trace.Span); begun {
		s.holds.Delete(holdKey{e.Name, e.Token})
		finishSpan(span, end)
	}
}

// finishSpan ends a span with the loss and the error of its hold's end.
func finishSpan(span trace.Span, end holdEnd) {
	if end.loss != "" {
		span.SetAttributes(attribute.String("snib.loss", string(end.loss)))
	}
	if end.err != nil {
		span.SetStatus(codes.Error, end.err.Error())
	}
	span.End()
}

func attributes(e snib.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("snib.lock", e.Name), attribute.String("snib.backend", e.Backend)}
	if e.Token != 0 { // tokens stay below 2^63 for centuries
		attrs = append(attrs, attribute.Int64("snib.fence", int64(e.Token)))
	}
	return attrs
}
