package metrics

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/metriclabel"
)

// Options configure a [Collector]. The zero value is a good default.
type Options struct {
	// Resource returns the class of a lock's name, which becomes the label "resource". It must
	// be safe for concurrent use, and is also called with invalid names. Nil means
	// [metriclabel.Class].
	Resource func(name string) string

	// MaxResources bounds the number of classes; the names of further classes are counted as
	// "other". 0 means 200: some 11,000 time series.
	MaxResources int

	// Resources are classes that are exported as zeros before anything has happened to their
	// locks, so that an alert sees the first failure as an increase.
	Resources []string
}

// A Collector counts the events of its Trace and exports the counts to Prometheus. It is safe
// for concurrent use, and serves any number of Lockers.
type Collector struct {
	vectors   *vectors
	store     storeDescs
	resources *metriclabel.Classes[resource]

	mu       sync.Mutex
	backends map[string]*backend
	surveys  map[string]survey // the last one of each backend that succeeded
}

// New returns a Collector, to be registered with a [prometheus.Registerer]. Invalid
// options are a [snib.ErrInvalid].
func New(o Options) (*Collector, error) {
	v := newVectors()
	resources, err := metriclabel.NewClasses(o.Resource, o.MaxResources, v.newResource)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if len(o.Resources) > resources.Most() {
		return nil, fmt.Errorf("metrics: %w", driver.Invalidf("Resources: they are %d, more than MaxResources, %d",
			len(o.Resources), resources.Most()))
	}
	for _, class := range o.Resources {
		resources.Class(class)
	}
	add(v, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "resource_overflows_total",
		Help: "How often a name was counted as other because there were too many resources."},
		func() float64 { return float64(resources.Folded()) }))
	return &Collector{vectors: v, store: newStoreDescs(), resources: resources, backends: map[string]*backend{},
		surveys: map[string]survey{}}, nil
}

// Trace returns the Trace to pass to each Locker: snib.Tracing(c.Trace()). Pass it once to each
// Locker and not to Lockers derived from it, which would count twice.
func (c *Collector) Trace() *snib.Trace {
	// Closures, because method values would copy each event once more.
	return &snib.Trace{
		WaitStarted: func(e snib.WaitStartedEvent) { c.resources.Name(e.Name).waiting.Inc() },
		WaitEnded:   func(e snib.WaitEndedEvent) { c.waitEnded(&e) },
		WaitStalled: func(e snib.WaitStalledEvent) { c.backend(e.Backend).stalled.Inc() },
		WaitResumed: func(e snib.WaitResumedEvent) { c.backend(e.Backend).stalled.Dec() },
		Renewed:     func(e snib.RenewedEvent) { c.renewed(&e) },
		Lost:        func(e snib.LostEvent) { c.lost(&e) },
		Released:    func(e snib.ReleasedEvent) { c.released(&e) },
		Regressed:   func(e snib.RegressedEvent) { c.resources.Name(e.Name).regressed.Inc() },
	}
}

func (c *Collector) waitEnded(e *snib.WaitEndedEvent) {
	r := c.resources.Name(e.Name)
	r.waiting.Dec()
	r.wait.Observe(e.Waited.Seconds())
	switch {
	case e.Err != nil:
		why := metriclabel.ReasonOf(e.Context, e.Err)
		r.failures[why].Inc()
		if why == metriclabel.Backend {
			c.backend(e.Backend).errors[metriclabel.Acquire].Inc()
		}
		return
	case e.Joined:
		return
	case e.Local:
		r.handedOver.Inc()
	}
	r.held.Inc()
}

func (c *Collector) lost(e *snib.LostEvent) {
	r := c.resources.Name(e.Name)
	r.lost[metriclabel.CauseOf(e.Loss)].Inc()
	r.held.Dec()
	r.hold.Observe(e.Held.Seconds())
}

func (c *Collector) released(e *snib.ReleasedEvent) {
	r := c.resources.Name(e.Name)
	r.held.Dec()
	r.hold.Observe(e.Held.Seconds())
	r.queue.Observe(float64(e.Queued))
	switch {
	case e.Err == nil:
	case errors.Is(e.Err, snib.ErrLost): // the store refused the release
		r.lost[metriclabel.CauseOf(snib.LossRefused)].Inc()
	default:
		c.backend(e.Backend).errors[metriclabel.Release].Inc()
	}
}

func (c *Collector) renewed(e *snib.RenewedEvent) {
	b := c.backend(e.Backend)
	b.took.Observe(e.Took.Seconds())
	if e.TTL > 0 {
		b.margin.Observe(e.Margin.Seconds() / e.TTL.Seconds())
	}
	if e.Margin < e.TTL/3 {
		c.resources.Name(e.Name).late.Inc()
	}
	outcome := metriclabel.OutcomeOf(e.Err)
	b.renewals[outcome].Inc()
	if outcome == metriclabel.Failed {
		b.errors[metriclabel.Renew].Inc()
	}
}

// backend returns the metrics for a backend. There is one for each kind of store in the program.
func (c *Collector) backend(name string) *backend {
	name = metriclabel.Clean(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backends[name]
	if b == nil {
		b = c.vectors.newBackend(name)
		c.backends[name] = b
	}
	return b
}
