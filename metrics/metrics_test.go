package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

func newCollector(t testing.TB, o metrics.Options) *metrics.Collector {
	t.Helper()
	c, err := metrics.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

// open returns a Locker that is closed with the test.
func open(t testing.TB, d driver.Driver, opts ...snib.Option) *snib.Locker {
	t.Helper()
	l, err := snib.New(d, opts...)
	if err != nil {
		t.Fatalf("snib.New: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func acquire(t testing.TB, l *snib.Locker, name string) *snib.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), name)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", name, err)
	}
	return lock
}

func release(t testing.TB, lock *snib.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Fatalf("Release(%q): %v", lock.Name(), err)
	}
}

func memory() driver.Driver { return memlock.New() }

// A scrape maps the series that Prometheus reads, such as name{label="value"}, to their values.
type scrape map[string]float64

func read(t testing.TB, c *metrics.Collector) scrape {
	t.Helper()
	got := scrape{}
	for line := range strings.Lines(exposition(t, c)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[end:]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[line[:end]] = value
	}
	return got
}

// check checks the values of the wanted series.
func (s scrape) check(t *testing.T, want scrape) {
	t.Helper()
	for _, series := range slices.Sorted(maps.Keys(want)) {
		if got, ok := s[series]; !ok || math.Abs(got-want[series]) > 1e-6 {
			t.Errorf("%s = %v (exported: %v), want %v", series, got, ok, want[series])
		}
	}
}

func TestWaitsAndHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollector(t, metrics.Options{})
		l := open(t, memlock.New(), snib.Tracing(c.Trace()))
		first := acquire(t, l, "jobs/1")
		var others sync.WaitGroup
		for range 2 {
			others.Go(func() {
				lock, err := l.Acquire(t.Context(), "jobs/1")
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				time.Sleep(20 * time.Second)
				if err := lock.Release(); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		time.Sleep(300 * time.Millisecond)
		read(t, c).check(t, scrape{
			`distributed_lock_held{resource="jobs"}`:                           1,
			`distributed_lock_waiting{resource="jobs"}`:                        2,
			`distributed_lock_wait_seconds_count{resource="jobs"}`:             1,
			`distributed_lock_wait_seconds_bucket{resource="jobs",le="0.001"}`: 1,
		})
		release(t, first)
		others.Wait()
		read(t, c).check(t, scrape{
			`distributed_lock_held{resource="jobs"}`:                         0,
			`distributed_lock_waiting{resource="jobs"}`:                      0,
			`distributed_lock_failures_total{reason="busy",resource="jobs"}`: 0,
			`distributed_lock_wait_seconds_count{resource="jobs"}`:           3,
			`distributed_lock_wait_seconds_sum{resource="jobs"}`:             0 + .3 + 20.3,
			`distributed_lock_wait_seconds_bucket{resource="jobs",le="0.1"}`: 1,
			`distributed_lock_wait_seconds_bucket{resource="jobs",le="0.5"}`: 2,
			`distributed_lock_wait_seconds_bucket{resource="jobs",le="5"}`:   2,
			`distributed_lock_hold_seconds_count{resource="jobs"}`:           3,
			`distributed_lock_hold_seconds_sum{resource="jobs"}`:             .3 + 20 + 20,
			`distributed_lock_hold_seconds_bucket{resource="jobs",le="1"}`:   1,
			`distributed_lock_queue_length_count{resource="jobs"}`:           3,
			`distributed_lock_queue_length_sum{resource="jobs"}`:             2 + 1 + 0,
			`distributed_lock_handovers_total{resource="jobs"}`:              1,
		})
	})
}

// TestHeldCountsHolds checks that a lock that is re-entered counts as one hold.
func TestHeldCountsHolds(t *testing.T) {
	c := newCollector(t, metrics.Options{})
	l := open(t, memlock.New(), snib.Tracing(c.Trace()), snib.Reentrant())
	outer := acquire(t, l, "a")
	inner, err := l.Acquire(outer.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	read(t, c).check(t, scrape{`distributed_lock_held{resource="a"}`: 1})
	release(t, inner)
	read(t, c).check(t, scrape{`distributed_lock_held{resource="a"}`: 1})
	release(t, outer)
	read(t, c).check(t, scrape{`distributed_lock_held{resource="a"}`: 0})
}

func TestFailures(t *testing.T) {
	tests := []struct {
		reason string
		fail   func(t *testing.T, d *fault.Driver, l *snib.Locker) error
	}{
		{"busy", func(t *testing.T, _ *fault.Driver, l *snib.Locker) error {
			release := acquire(t, l.With(snib.Tracing(nil)), "b")
			_, err := l.With(snib.MaxWait(1)).AcquireAll(t.Context(), "b")
			return errors.Join(err, release.Release())
		}},
		{"canceled", func(t *testing.T, _ *fault.Driver, l *snib.Locker) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("the caller had enough"))
			_, err := l.Acquire(ctx, "a")
			return err
		}},
		{"timeout", func(t *testing.T, _ *fault.Driver, l *snib.Locker) error {
			ctx, cancel := context.WithTimeout(t.Context(), -1)
			defer cancel()
			_, err := l.Acquire(ctx, "a")
			return err
		}},
		{"invalid", func(t *testing.T, _ *fault.Driver, l *snib.Locker) error {
			lock := acquire(t, l, "a")
			_, err := l.Acquire(lock.Context(), "a")
			return errors.Join(err, lock.Release())
		}},
		{"closed", func(t *testing.T, _ *fault.Driver, l *snib.Locker) error {
			_ = l.Close()
			_, err := l.Acquire(t.Context(), "a")
			return err
		}},
		{"backend", func(t *testing.T, d *fault.Driver, l *snib.Locker) error {
			d.Sever(fault.Fail)
			_, err := l.With(snib.RetryTimeout(0)).Acquire(t.Context(), "a")
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			c := newCollector(t, metrics.Options{Resource: func(string) string { return "all" }})
			d := fault.Wrap(memlock.New(), fault.Plan{})
			if err := tt.fail(t, d, open(t, d, snib.Tracing(c.Trace()))); err == nil {
				t.Fatal("it did not fail")
			}
			got, want := read(t, c), scrape{}
			for _, reason := range []string{"busy", "canceled", "timeout", "invalid", "closed", "regressed", "backend"} {
				want[fmt.Sprintf("distributed_lock_failures_total{reason=%q,resource=\"all\"}", reason)] = 0
			}
			want[fmt.Sprintf("distributed_lock_failures_total{reason=%q,resource=\"all\"}", tt.reason)] = 1
			if tt.reason == "backend" {
				want[`distributed_lock_backend_errors_total{backend="memory",op="acquire"}`] = 1
			}
			got.check(t, want)
		})
	}
}

// An acquisition that waits for the store counts as stalled until the store answers.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollector(t, metrics.Options{})
		d := fault.Wrap(memlock.New(), fault.Plan{})
		l := open(t, d, snib.Tracing(c.Trace()))
		d.Sever(fault.Fail)
		got := make(chan *snib.Lock)
		go func() { got <- acquire(t, l, "a") }()
		time.Sleep(time.Second)
		read(t, c).check(t, scrape{`distributed_lock_stalled{backend="memory"}`: 1})
		d.Heal()
		release(t, <-got)
		read(t, c).check(t, scrape{`distributed_lock_stalled{backend="memory"}`: 0})
	})
}

func TestLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollector(t, metrics.Options{})
		d := fault.Wrap(memlock.New(), fault.Plan{})
		l := open(t, d, snib.Tracing(c.Trace()), snib.TTL(30*time.Second))
		short, broken := acquire(t, l.With(snib.MaxHold(time.Second)), "a"), acquire(t, l, "b")
		if err := d.Break(t.Context(), "b", broken.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		cut := acquire(t, l, "c")
		d.Sever(fault.Fail)
		time.Sleep(30 * time.Second)
		d.Heal()
		closed := acquire(t, l, "d")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := scrape{}
		for resource, cause := range map[string]string{"a": "max_hold", "b": "refused", "c": "expired", "d": "closed"} {
			for _, other := range []string{"max_hold", "refused", "expired", "closed", "unknown"} {
				want[fmt.Sprintf("distributed_lock_lost_total{cause=%q,resource=%q}", other, resource)] = 0
			}
			want[fmt.Sprintf("distributed_lock_lost_total{cause=%q,resource=%q}", cause, resource)] = 1
			want[fmt.Sprintf("distributed_lock_held{resource=%q}", resource)] = 0
			want[fmt.Sprintf("distributed_lock_hold_seconds_count{resource=%q}", resource)] = 1
		}
		read(t, c).check(t, want)
		for _, lock := range []*snib.Lock{short, broken, cut, closed} {
			if err := lock.Release(); !errors.Is(err, snib.ErrLost) {
				t.Errorf("Release(%q) = %v, want %v", lock.Name(), err, snib.ErrLost)
			}
		}
	})
}

func TestRenewals(t *testing.T) {
	c := newCollector(t, metrics.Options{})
	renewed := c.Trace().Renewed
	c.Trace().WaitStarted(snib.WaitStartedEvent{Event: snib.Event{Name: "a"}})
	const ttl = 30 * time.Second
	renewed(snib.RenewedEvent{Event: snib.Event{Name: "a", Backend: "redis"}, TTL: ttl, Margin: 20 * time.Second,
		Took: 2 * time.Millisecond})
	renewed(snib.RenewedEvent{Event: snib.Event{Name: "a", Backend: "redis"}, TTL: ttl, Margin: 10 * time.Second})
	renewed(snib.RenewedEvent{Event: snib.Event{Name: "b", Backend: "redis"}, TTL: ttl, Margin: 9 * time.Second})
	renewed(snib.RenewedEvent{Event: snib.Event{Name: "b", Backend: "redis"}, TTL: ttl, Margin: 1 * time.Second,
		Err: errors.New("no route to host")})
	renewed(snib.RenewedEvent{Event: snib.Event{Name: "b", Backend: "redis"}, TTL: ttl, Margin: 15 * time.Second,
		Err: fmt.Errorf("redis: %w", snib.ErrLost)})
	read(t, c).check(t, scrape{
		`distributed_lock_renewals_total{backend="redis",outcome="ok"}`:           3,
		`distributed_lock_renewals_total{backend="redis",outcome="failed"}`:       1,
		`distributed_lock_renewals_total{backend="redis",outcome="refused"}`:      1,
		`distributed_lock_backend_errors_total{backend="redis",op="renew"}`:       1,
		`distributed_lock_late_renewals_total{resource="a"}`:                      0,
		`distributed_lock_late_renewals_total{resource="b"}`:                      2,
		`distributed_lock_renewal_margin_ratio_count{backend="redis"}`:            5,
		`distributed_lock_renewal_margin_ratio_bucket{backend="redis",le="0.05"}`: 1,
		`distributed_lock_renewal_margin_ratio_bucket{backend="redis",le="0.5"}`:  4,
		`distributed_lock_renewal_seconds_sum{backend="redis"}`:                   .002,
	})
}

func TestReleases(t *testing.T) {
	c := newCollector(t, metrics.Options{})
	released := c.Trace().Released
	released(snib.ReleasedEvent{Event: snib.Event{Name: "a", Backend: "redis"}, Err: errors.New("no route to host")})
	released(snib.ReleasedEvent{Event: snib.Event{Name: "b", Backend: "redis"},
		Err: fmt.Errorf("redis: %w", snib.ErrLost)})
	read(t, c).check(t, scrape{
		`distributed_lock_backend_errors_total{backend="redis",op="release"}`: 1,
		`distributed_lock_lost_total{cause="refused",resource="a"}`:           0,
		`distributed_lock_lost_total{cause="refused",resource="b"}`:           1,
	})
}

func TestRegressions(t *testing.T) {
	c := newCollector(t, metrics.Options{Resources: []string{"quiet"}})
	c.Trace().Regressed(snib.RegressedEvent{Event: snib.Event{Name: "a/1", Token: 4}, Last: 5})
	read(t, c).check(t, scrape{
		`distributed_lock_token_regressions_total{resource="a"}`:             1,
		`distributed_lock_token_regressions_total{resource="quiet"}`:         0,
		`distributed_lock_failures_total{reason="backend",resource="quiet"}`: 0,
	})
}

// TestNoAllocations checks that counting a hold does not allocate.
func TestNoAllocations(t *testing.T) {
	trace := newCollector(t, metrics.Options{}).Trace()
	ctx, e := t.Context(), snib.Event{Name: "invoices/1", Backend: "memory"}
	if n := testing.AllocsPerRun(1000, func() {
		trace.WaitStarted(snib.WaitStartedEvent{Event: e, Context: ctx})
		trace.WaitEnded(snib.WaitEndedEvent{Event: e, Context: ctx, Waited: time.Millisecond})
		trace.Released(snib.ReleasedEvent{Event: e, Held: time.Second})
	}); n > 0 {
		t.Errorf("a hold takes %v allocations, want none", n)
	}
}

func TestOptions(t *testing.T) {
	tests := []struct {
		name string
		o    metrics.Options
		says string
	}{
		{"Negative", metrics.Options{MaxResources: -1}, "MaxResources: -1 is negative"},
		{"TooMany", metrics.Options{MaxResources: 1, Resources: []string{"a", "b"}},
			"Resources: they are 2, more than MaxResources, 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := metrics.New(tt.o)
			if !errors.Is(err, snib.ErrInvalid) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("New(%+v) = %v, want %v: %s", tt.o, err, snib.ErrInvalid, tt.says)
			}
		})
	}
}
