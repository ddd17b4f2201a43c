package otelmetrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/metriclabel"
)

// scope is the instrumentation scope of this package.
const scope = "github.com/sniblock/snib/metrics/otelmetrics"

// Options configure [Metrics]. The zero value is a good default.
type Options struct {
	// Resource returns the class of a lock's name, which becomes the attribute "resource". It
	// must be safe for concurrent use, and is also called with invalid names. Nil means
	// [metriclabel.Class].
	Resource func(name string) string

	// MaxResources bounds the number of classes; the names of further classes are
	// counted as "other". 0 means 200.
	MaxResources int
}

// Metrics returns a Trace that counts events through p. Pass it to each Locker once. Invalid
// options and a nil p are a [snib.ErrInvalid]; other errors are those of p.
func Metrics(p metric.MeterProvider, o Options) (*snib.Trace, error) {
	if p == nil {
		return nil, fmt.Errorf("otelmetrics: %w: the MeterProvider is nil", snib.ErrInvalid)
	}
	classes, err := metriclabel.NewClasses(o.Resource, o.MaxResources, newClass)
	if err != nil {
		return nil, fmt.Errorf("otelmetrics: %w", err)
	}
	m := &instruments{classes: classes}
	if err := m.create(p.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otelmetrics: %w", err)
	}
	return &snib.Trace{
		WaitStarted: func(e snib.WaitStartedEvent) { m.waiting.Add(e.Context, 1, classes.Name(e.Name).resource) },
		WaitEnded:   func(e snib.WaitEndedEvent) { m.waitEnded(&e) },
		WaitStalled: func(e snib.WaitStalledEvent) { m.addStalled(e.Context, e.Backend, 1) },
		WaitResumed: func(e snib.WaitResumedEvent) { m.addStalled(e.Context, e.Backend, -1) },
		Renewed:     func(e snib.RenewedEvent) { m.renewed(&e) },
		Lost:        func(e snib.LostEvent) { m.lost(e.Name, e.Held, e.Loss) },
		Released:    func(e snib.ReleasedEvent) { m.released(&e) },
		Regressed: func(e snib.RegressedEvent) {
			m.regressions.Add(context.Background(), 1,
				classes.Name(e.Name).resource)
		},
	}, nil
}

// A class contains the attribute sets for one class of names, which are created only once.
type class struct {
	resource metric.MeasurementOption
	reason   [metriclabel.Reasons]metric.MeasurementOption
	cause    [metriclabel.Causes]metric.MeasurementOption
}

func newClass(name string) *class {
	resourceAttr := attribute.String("resource", name)
	c := &class{resource: metric.WithAttributeSet(attribute.NewSet(resourceAttr))}
	for r := range c.reason {
		c.reason[r] = metric.WithAttributeSet(attribute.NewSet(resourceAttr,
			attribute.String("reason", metriclabel.Reason(r).String())))
	}
	for l := range c.cause {
		c.cause[l] = metric.WithAttributeSet(attribute.NewSet(resourceAttr,
			attribute.String("cause", metriclabel.Cause(l).String())))
	}
	return c
}

// instruments are all instruments of a meter, with the classes of names.
type instruments struct {
	classes *metriclabel.Classes[class]

	wait, hold, renewal, margin                                      metric.Float64Histogram
	queue                                                            metric.Int64Histogram
	held, waiting, stalled                                           metric.Int64UpDownCounter
	failures, handOvers, losses, regressions, late, renewals, errors metric.Int64Counter
}

func (m *instruments) create(from metric.Meter) error {
	var errs []error
	histogram := func(name, unit, what string, bounds ...float64) metric.Float64Histogram {
		h, err := from.Float64Histogram("distributed_lock."+name, metric.WithUnit(unit), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	counter := func(name, what string) metric.Int64Counter {
		c, err := from.Int64Counter("distributed_lock."+name, metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, what string) metric.Int64UpDownCounter {
		g, err := from.Int64UpDownCounter("distributed_lock."+name, metric.WithDescription(what))
		errs = append(errs, err)
		return g
	}
	m.wait = histogram("wait", "s", "Time from the call of Acquire to its end, whether it got the lock or not.",
		metriclabel.Waits()...)
	m.hold = histogram("hold", "s", "Time from the grant to the end of a hold.", metriclabel.Holds()...)
	m.renewal = histogram("renewal", "s", "Time that the store took to answer a renewal.", metriclabel.Latencies()...)
	m.margin = histogram("renewal_margin_ratio", "1", "Part of the lease that was left when its renewal was answered.",
		metriclabel.Margins()...)
	queue, err := from.Int64Histogram("distributed_lock.queue_length",
		metric.WithDescription("How many waited in this process for a lock when it was released."),
		metric.WithExplicitBucketBoundaries(metriclabel.Lengths()...))
	m.queue, errs = queue, append(errs, err)

	m.held = gauge("held", "Holds of this process now.")
	m.waiting = gauge("waiting", "Acquires of this process that have not ended yet.")
	m.stalled = gauge("stalled", "Acquires of this process that wait for the store and not for a holder.")
	m.failures = counter("failures", "Acquires that did not get the lock, by reason.")
	m.handOvers = counter("handovers", "Holds that were handed over within this process, without asking the store.")
	m.losses = counter("lost", "Holds that ended before Release, by cause.")
	m.regressions = counter("token_regressions", "Grants with a fencing token that is not above one granted before.")
	m.late = counter("late_renewals", "Renewals that were answered within the last third of their lease.")
	m.renewals = counter("renewals", "Renewals of leases, by outcome.")
	m.errors = counter("backend_errors", "Operations that failed because of the store or the way to it.")

	_, err = from.Int64ObservableCounter("distributed_lock.resource_overflows",
		metric.WithDescription("How often a name was counted as other because there were too many resources."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(m.classes.Folded()))
			return nil
		}))
	return errors.Join(append(errs, err)...)
}

func (m *instruments) waitEnded(e *snib.WaitEndedEvent) {
	c := m.classes.Name(e.Name)
	m.waiting.Add(e.Context, -1, c.resource)
	m.wait.Record(e.Context, e.Waited.Seconds(), c.resource)
	switch {
	case e.Err != nil:
		why := metriclabel.ReasonOf(e.Context, e.Err)
		m.failures.Add(e.Context, 1, c.reason[why])
		if why == metriclabel.Backend {
			m.failed(e.Backend, metriclabel.Acquire)
		}
		return
	case e.Joined:
		return
	case e.Local:
		m.handOvers.Add(e.Context, 1, c.resource)
	}
	m.held.Add(e.Context, 1, c.resource)
}

func (m *instruments) lost(name string, held time.Duration, loss snib.Loss) {
	c, ctx := m.classes.Name(name), context.Background()
	m.held.Add(ctx, -1, c.resource)
	m.hold.Record(ctx, held.Seconds(), c.resource)
	m.losses.Add(ctx, 1, c.cause[metriclabel.CauseOf(loss)])
}

func (m *instruments) released(e *snib.ReleasedEvent) {
	c, ctx := m.classes.Name(e.Name), context.Background()
	m.queue.Record(ctx, int64(e.Queued), c.resource)
	if errors.Is(e.Err, snib.ErrLost) { // the store refused the release
		m.lost(e.Name, e.Held, snib.LossRefused)
		return
	}
	m.held.Add(ctx, -1, c.resource)
	m.hold.Record(ctx, e.Held.Seconds(), c.resource)
	if e.Err != nil {
		m.failed(e.Backend, metriclabel.Release)
	}
}

func (m *instruments) renewed(e *snib.RenewedEvent) {
	ctx, backend, outcome := context.Background(), attribute.String("backend", e.Backend), metriclabel.OutcomeOf(e.Err)
	m.renewals.Add(ctx, 1, metric.WithAttributes(backend, attribute.String("outcome", outcome.String())))
	m.renewal.Record(ctx, e.Took.Seconds(), metric.WithAttributes(backend))
	if e.TTL > 0 {
		m.margin.Record(ctx, e.Margin.Seconds()/e.TTL.Seconds(), metric.WithAttributes(backend))
	}
	if metriclabel.Late(e) {
		m.late.Add(ctx, 1, m.classes.Name(e.Name).resource)
	}
	if outcome == metriclabel.Failed {
		m.failed(e.Backend, metriclabel.Renew)
	}
}

// addStalled adds n to the acquisitions that wait for a store and not for a holder.
func (m *instruments) addStalled(ctx context.Context, backend string, n int64) {
	m.stalled.Add(ctx, n, metric.WithAttributes(attribute.String("backend", backend)))
}

// failed counts an operation that failed because of the store.
func (m *instruments) failed(backend string, op metriclabel.Op) {
	m.errors.Add(context.Background(), 1, metric.WithAttributes(attribute.String("backend", backend),
		attribute.String("op", op.String())))
}
