package otelmetrics

import (
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
		return nil, fmt.Errorf("otelmetrics: %w TracerProvider: it is nil", snib.ErrInvalid)
	}
	s := &spans{tracer: p.Tracer(scope)}
	return &snib.Trace{
		WaitEnded: func(e snib.Event) {
			if e.Err != nil { // otherwise Acquired follows, with the token
				s.recordAcquire(&e)
			}
		},
		Acquired: func(e snib.Event) {
			s.recordAcquire(&e)
			if !e.Joined && e.Token != 0 {
				s.beginHold(&e)
			}
		},
		Lost:     func(e snib.Event) { s.endHold(&e) },
		Released: func(e snib.Event) { s.endHold(&e) },
	}, nil
}

type spans struct {
	tracer trace.Tracer
	// From holdKey to the trace.Span of a hold, or to the *snib.Event that ended it
	// before Acquired.
	holds sync.Map
}

type holdKey struct {
	name  string
	token uint64
}

// recordAcquire creates the span of an Acquire that has just ended.
func (s *spans) recordAcquire(e *snib.Event) {
	end := time.Now()
	_, span := s.tracer.Start(e.Context, AcquireSpan, trace.WithTimestamp(end.Add(-e.Waited)), trace.WithAttributes(attributes(e)...))
	if e.Err != nil {
		why := metriclabel.ReasonOf(e.Context, e.Err)
		span.SetAttributes(attribute.String("snib.reason", why.String()))
		if why != metriclabel.Busy {
			span.SetStatus(codes.Error, e.Err.Error())
		}
	}
	span.End(trace.WithTimestamp(end))
}

// beginHold starts the span of a hold, and ends it at once if the hold has ended already.
func (s *spans) beginHold(e *snib.Event) {
	_, span := s.tracer.Start(e.Context, HoldSpan, trace.WithAttributes(attributes(e)...))
	was, _ := s.holds.LoadOrStore(holdKey{e.Name, e.Token}, span)
	if loss, early := was.(*snib.Event); early {
		s.holds.Delete(holdKey{e.Name, e.Token})
		finishSpan(span, loss)
	}
}

// endHold ends the span of a hold, or stores the event for beginHold if the span has not begun.
func (s *spans) endHold(e *snib.Event) {
	if e.Token == 0 {
		return
	}
	was, _ := s.holds.LoadOrStore(holdKey{e.Name, e.Token}, e)
	if span, begun := was.(trace.Span); begun {
		s.holds.Delete(holdKey{e.Name, e.Token})
		finishSpan(span, e)
	}
}

// finishSpan ends a span with the loss and the error of the event.
func finishSpan(span trace.Span, e *snib.Event) {
	if e.Loss != "" {
		span.SetAttributes(attribute.String("snib.loss", string(e.Loss)))
	}
	if e.Err != nil {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End()
}

func attributes(e *snib.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("snib.lock", e.Name), attribute.String("snib.backend", e.Backend)}
	if e.Token != 0 { // tokens stay below 2^63 for centuries
		attrs = append(attrs, attribute.Int64("snib.fence", int64(e.Token)))
	}
	return attrs
}
