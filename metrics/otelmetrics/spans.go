package otelmetrics

import (
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/label"
)

// The names of the spans.
const (
	AcquireSpan = "snib.acquire" // an Acquire, from call to return
	HoldSpan    = "snib.hold"    // a hold, from then to its end
)

// Spans returns a Trace that makes a span of each Acquire and one of each hold, both children of the span that the context of the
// Acquire carries. It is to be given to each Locker once, and a Trace of its own to each store. A p that is nil is a [snib.ErrInvalid].
//
// Both have the attributes snib.lock, snib.backend and snib.fence. An Acquire that failed has snib.reason, and the status Error
// unless the lock was merely busy; a hold that was lost has snib.loss and the status Error. The span of a hold is ended by its
// Release or its loss, and so never where neither comes. Holds without a fencing token have no span: nothing tells them apart.
func Spans(p trace.TracerProvider) (*snib.Trace, error) {
	if p == nil {
		return nil, fmt.Errorf("otelmetrics: %w TracerProvider: it is nil", snib.ErrInvalid)
	}
	s := &spans{tracer: p.Tracer(scope)}
	return &snib.Trace{
		WaitEnded: func(e snib.Event) {
			if e.Err != nil { // else Acquired follows, which knows the token
				s.acquire(&e)
			}
		},
		Acquired: func(e snib.Event) {
			s.acquire(&e)
			if !e.Joined && e.Token != 0 {
				s.begin(&e)
			}
		},
		Lost:     func(e snib.Event) { s.end(&e) },
		Released: func(e snib.Event) { s.end(&e) },
	}, nil
}

type spans struct {
	tracer trace.Tracer
	holds  sync.Map // from holdKey to the trace.Span of a hold, or to a loss that was told before its Acquired
}

type holdKey struct {
	name  string
	token uint64
}

// acquire makes the span of an Acquire that has just ended.
func (s *spans) acquire(e *snib.Event) {
	end := time.Now()
	_, span := s.tracer.Start(e.Context, AcquireSpan, trace.WithTimestamp(end.Add(-e.Waited)), trace.WithAttributes(attributes(e)...))
	if e.Err != nil {
		why := label.ReasonOf(e.Context, e.Err)
		span.SetAttributes(attribute.String("snib.reason", why.String()))
		if why != label.Busy {
			span.SetStatus(codes.Error, e.Err.Error())
		}
	}
	span.End(trace.WithTimestamp(end))
}

// begin starts the span of a hold, and ends it at once if the hold was lost already.
func (s *spans) begin(e *snib.Event) {
	_, span := s.tracer.Start(e.Context, HoldSpan, trace.WithAttributes(attributes(e)...))
	was, _ := s.holds.LoadOrStore(holdKey{e.Name, e.Token}, span)
	if loss, early := was.(*snib.Event); early {
		s.holds.Delete(holdKey{e.Name, e.Token})
		finish(span, loss)
	}
}

// end ends the span of a hold, or leaves a note for begin.
func (s *spans) end(e *snib.Event) {
	if e.Token == 0 {
		return
	}
	was, _ := s.holds.LoadOrStore(holdKey{e.Name, e.Token}, e)
	if span, begun := was.(trace.Span); begun {
		s.holds.Delete(holdKey{e.Name, e.Token})
		finish(span, e)
	}
}

// finish ends a span as the event tells.
func finish(span trace.Span, e *snib.Event) {
	if e.Loss != "" {
		span.SetAttributes(attribute.String("snib.loss", string(e.Loss)))
	}
	if e.Err != nil {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End()
}

func attributes(e *snib.Event) []attribute.KeyValue {
	of := []attribute.KeyValue{attribute.String("snib.lock", e.Name), attribute.String("snib.backend", e.Backend)}
	if e.Token != 0 { // below 2^63 by centuries
		of = append(of, attribute.Int64("snib.fence", int64(e.Token)))
	}
	return of
}
