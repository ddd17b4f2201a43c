package otelmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics/otelmetrics"
)

// open returns a Locker that is closed with the test.
func open(t *testing.T, d driver.Driver, opts ...snib.Option) *snib.Locker {
	t.Helper()
	l, err := snib.New(d, opts...)
	if err != nil {
		t.Fatalf("snib.New: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func acquire(t *testing.T, l *snib.Locker, name string) *snib.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), name)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", name, err)
	}
	return lock
}

func release(t *testing.T, lock *snib.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Fatalf("Release(%q): %v", lock.Name(), err)
	}
}

// newCountingTrace returns a Trace, and a function that reads its counts. The map's
// keys are "name{attribute=value,...}", its values those of counters, or the number
// of observations of a histogram.
func newCountingTrace(t *testing.T, o otelmetrics.Options) (*snib.Trace, func() map[string]float64) {
	t.Helper()
	reader := metric.NewManualReader()
	trace, err := otelmetrics.Metrics(metric.NewMeterProvider(metric.WithReader(reader)), o)
	if err != nil {
		t.Fatalf("Metrics: %v", err)
	}
	return trace, func() map[string]float64 {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatalf("Collect: %v", err)
		}
		got := map[string]float64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				add(got, m)
			}
		}
		return got
	}
}

// add adds the data points of an instrument, under its name after the translation
// for Prometheus.
func add(got map[string]float64, m metricdata.Metrics) {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	put := func(suffix string, set attribute.Set, value float64) {
		var labels []string
		for _, kv := range set.ToSlice() {
			labels = append(labels, fmt.Sprintf("%s=%s", kv.Key, kv.Value.String()))
		}
		got[name+suffix+"{"+strings.Join(labels, ",")+"}"] = value
	}
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			put("", p.Attributes, float64(p.Count))
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			put("", p.Attributes, float64(p.Count))
		}
	case metricdata.Sum[int64]:
		suffix := ""
		if data.IsMonotonic {
			suffix = "_total"
		}
		for _, p := range data.DataPoints {
			put(suffix, p.Attributes, float64(p.Value))
		}
	}
}

func TestMetrics(t *testing.T) {
	trace, read := newCountingTrace(t, otelmetrics.Options{})
	d := memlock.New()
	l := open(t, d, snib.Tracing(trace), snib.Reentrant())
	outer := acquire(t, l, "invoices/1")
	inner, err := l.Acquire(outer.Context(), "invoices/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), "invoices/1"); !errors.Is(err, snib.ErrHeld) {
		t.Fatalf("TryAcquire = %v, want %v", err, snib.ErrHeld)
	}
	check(t, read(), map[string]float64{"distributed_lock_held{resource=invoices}": 1,
		"distributed_lock_waiting{resource=invoices}": 0})
	release(t, inner)
	release(t, outer)
	for range 2 {
		trace.WaitStalled(snib.WaitStalledEvent{Event: snib.Event{Name: "a", Backend: "redis"}, Context: t.Context()})
	}
	trace.WaitResumed(snib.WaitResumedEvent{Event: snib.Event{Name: "a", Backend: "redis"}, Context: t.Context()})
	trace.Lost(snib.LostEvent{Event: snib.Event{Name: "a"}, Loss: snib.LossExpired})
	trace.Regressed(snib.RegressedEvent{Event: snib.Event{Name: "a"}})
	trace.Renewed(snib.RenewedEvent{Event: snib.Event{Name: "a", Backend: "redis"}, TTL: time.Minute, Margin: time.Second,
		Err: errors.New("no route to host")})
	trace.WaitEnded(snib.WaitEndedEvent{Event: snib.Event{Name: "b", Backend: "redis"}, Context: t.Context(),
		Err: errors.New("no route to host")})
	trace.WaitEnded(snib.WaitEndedEvent{Event: snib.Event{Name: "b", Backend: "redis"}, Context: t.Context(), Local: true})
	trace.Released(snib.ReleasedEvent{Event: snib.Event{Name: "b", Backend: "redis"}, Err: errors.New("no route to host")})
	trace.Released(snib.ReleasedEvent{Event: snib.Event{Name: "c", Backend: "redis"}, Err: snib.ErrLost})
	check(t, read(), map[string]float64{
		"distributed_lock_wait_seconds{resource=invoices}":                3,
		"distributed_lock_failures_total{reason=busy,resource=invoices}":  1,
		"distributed_lock_hold_seconds{resource=invoices}":                1,
		"distributed_lock_queue_length{resource=invoices}":                1,
		"distributed_lock_held{resource=invoices}":                        0,
		"distributed_lock_lost_total{cause=expired,resource=a}":           1,
		"distributed_lock_held{resource=a}":                               -1,
		"distributed_lock_token_regressions_total{resource=a}":            1,
		"distributed_lock_late_renewals_total{resource=a}":                1,
		"distributed_lock_stalled{backend=redis}":                         1,
		"distributed_lock_renewals_total{backend=redis,outcome=failed}":   1,
		"distributed_lock_renewal_seconds{backend=redis}":                 1,
		"distributed_lock_renewal_margin_ratio{backend=redis}":            1,
		"distributed_lock_backend_errors_total{backend=redis,op=renew}":   1,
		"distributed_lock_backend_errors_total{backend=redis,op=acquire}": 1,
		"distributed_lock_backend_errors_total{backend=redis,op=release}": 1,
		"distributed_lock_handovers_total{resource=b}":                    1,
		"distributed_lock_lost_total{cause=refused,resource=c}":           1,
		"distributed_lock_resource_overflows_total{}":                     0,
	})
}

func check(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for _, series := range slices.Sorted(maps.Keys(want)) {
		if n, ok := got[series]; !ok || n != want[series] {
			t.Errorf("%s = %v (exists: %v), want %v", series, n, ok, want[series])
		}
	}
}

// TestNamesAreThoseOfPrometheus checks that the names are those that the page lists
// for Prometheus.
func TestNamesAreThoseOfPrometheus(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/generated/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	trace, read := newCountingTrace(t, otelmetrics.Options{})
	ctx, e, err := t.Context(), snib.Event{Name: "a", Backend: "memory"}, errors.New("no route to host")
	trace.WaitStarted(snib.WaitStartedEvent{Event: e, Context: ctx})
	trace.WaitStalled(snib.WaitStalledEvent{Event: e, Context: ctx, Err: err})
	trace.WaitEnded(snib.WaitEndedEvent{Event: e, Context: ctx, Err: err})
	trace.WaitEnded(snib.WaitEndedEvent{Event: e, Context: ctx, Local: true})
	trace.Renewed(snib.RenewedEvent{Event: e, TTL: time.Minute, Err: err})
	trace.Lost(snib.LostEvent{Event: e, Err: err})
	trace.Released(snib.ReleasedEvent{Event: e, Err: err})
	trace.Regressed(snib.RegressedEvent{Event: e})
	ours := map[string]bool{}
	for series := range read() {
		name, _, _ := strings.Cut(series, "{")
		ours[name] = true
	}
	theirs := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(distributed_lock_[a-z_]+)`").FindAllSubmatch(page, -1) {
		if name := string(m[1]); !strings.HasPrefix(name, "distributed_lock_store_") {
			theirs[name] = true
		}
	}
	if len(theirs) < 15 || !maps.Equal(ours, theirs) {
		t.Errorf("names:\n%v\nthe page has:\n%v", slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs)))
	}
}

func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
		trace, err := otelmetrics.Spans(provider)
		if err != nil {
			t.Fatalf("Spans: %v", err)
		}
		l := open(t, memlock.New(), snib.Tracing(trace))
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
		time.AfterFunc(2*time.Second, func() { release(t, first) })
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
			fmt.Sprintf("snib.acquire 2s Unset snib.lock=a snib.backend=memory snib.fence=%d", second.Token()),
		}
		if !slices.Equal(got, want) {
			t.Errorf("spans:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		release(t, second)
	})
}

func TestProvidersAreNeeded(t *testing.T) {
	if _, err := otelmetrics.Metrics(nil, otelmetrics.Options{}); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("Metrics(nil) = %v, want %v", err, snib.ErrInvalid)
	}
	if _, err := otelmetrics.Metrics(metric.NewMeterProvider(), otelmetrics.Options{MaxResources: -1}); !errors.Is(err,
		snib.ErrInvalid) {
		t.Errorf("Metrics with -1 resources = %v, want %v", err, snib.ErrInvalid)
	}
	if _, err := otelmetrics.Spans(nil); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("Spans(nil) = %v, want %v", err, snib.ErrInvalid)
	}
}
