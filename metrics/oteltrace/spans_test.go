package oteltrace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics/oteltrace"
)

func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
		trace, err := oteltrace.Spans(provider)
		if err != nil {
			t.Fatalf("Spans: %v", err)
		}
		l, err := snib.New(memlock.New(), snib.Tracing(trace))
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		defer l.Close()
		ctx, request := provider.Tracer("test").Start(t.Context(), "request")
		first, err := l.Acquire(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAcquire(ctx, "a"); !errors.Is(err, snib.ErrHeld) {
			t.Fatalf("TryAcquire = %v, want %v", err, snib.ErrHeld)
		}
		if _, err := l.Acquire(ctx, ""); !errors.Is(err, snib.ErrInvalid) {
			t.Fatalf("Acquire without a name = %v, want %v", err, snib.ErrInvalid)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := l.Acquire(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Fatalf("Acquire by a caller that is gone = %v, want %v", err, context.Canceled)
		}
		time.AfterFunc(2*time.Second, func() { _ = first.Release() })
		second, err := l.Acquire(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range recorder.Ended() {
			text := fmt.Sprintf("%s %v %v", s.Name(), s.EndTime().Sub(s.StartTime()), s.Status().Code)
			for _, kv := range s.Attributes() {
				text += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
			}
			got = append(got, text)
			if s.Parent().SpanID() != request.SpanContext().SpanID() {
				t.Errorf("the parent of %s is not the span of the request", text)
			}
		}
		want := []string{
			fmt.Sprintf("snib.acquire 0s Unset snib.lock=a snib.backend=memory snib.fence=%d", first.Token()),
			"snib.acquire 0s Unset snib.lock=a snib.backend=memory snib.reason=busy",
			"snib.acquire 0s Error snib.lock= snib.backend=memory snib.reason=invalid",
			"snib.acquire 0s Unset snib.lock=a snib.backend=memory snib.reason=canceled",
			fmt.Sprintf("snib.acquire 2s Unset snib.lock=a snib.backend=memory snib.fence=%d", second.Token()),
		}
		if !slices.Equal(got, want) {
			t.Errorf("spans:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestProviderIsNeeded(t *testing.T) {
	if _, err := oteltrace.Spans(nil); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("Spans(nil) = %v, want %v", err, snib.ErrInvalid)
	}
}
