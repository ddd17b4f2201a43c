package metrics

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/metriclabel"
)

// Other is the resource that counts all names whose class is not exported separately.
const Other = metriclabel.Other

// Resource returns the default class of a lock's name: the part before the first separator that
// is followed by a digit. "invoices/2026-11" and "invoices/2026-12" are "invoices";
// "cron/report" stays unchanged. A separator is a byte of punctuation or a space.
//
// Names that are made unique in another way, for example by a UUID that begins with
// a letter, need a custom function.
func Resource(name string) string { return metriclabel.Class(name) }

// Options configure a [Collector]. The zero value is a good default.
type Options struct {
	// Resource returns the class of a lock's name, which becomes the label "resource". It must
	// be safe for concurrent use, and is also called with invalid names. Nil means [Resource].
	Resource func(name string) string

	// MaxResources bounds the number of classes; the names of further classes are counted as
	// [Other]. 0 means [DefaultMaxResources].
	MaxResources int

	// Resources are classes that are exported as zeros before anything has happened to their
	// locks, so that an alert sees the first failure as an increase.
	Resources []string
}

// DefaultMaxResources is the default of [Options].MaxResources: some 11,000 time series.
const DefaultMaxResources = metriclabel.DefaultMax

// A Collector counts the events of its Trace and exports the counts to Prometheus. It is safe
// for concurrent use, and serves any number of Lockers.
type Collector struct {
	resources *metriclabel.Classes[resource]
	descs     descs

	mu       sync.Mutex
	backends map[string]*backend
	surveys  map[string]*survey
}

// New returns a Collector, to be registered with a [prometheus.Registerer]. Invalid
// options are a [snib.ErrInvalid].
func New(o Options) (*Collector, error) {
	resources, err := metriclabel.NewClasses(o.Resource, o.MaxResources, maxShards, newResource)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if len(o.Resources) > resources.Most() {
		return nil, fmt.Errorf("metrics: %w", driver.Invalidf("Resources: they are %d, more than MaxResources, %d", len(o.Resources), resources.Most()))
	}
	for _, class := range o.Resources {
		resources.Class(class)
	}
	return &Collector{resources: resources, descs: newDescs(), backends: map[string]*backend{}, surveys: map[string]*survey{}}, nil
}

// Trace returns the Trace to pass to each Locker: snib.Tracing(c.Trace()). Pass it once to each
// Locker and not to Lockers derived from it, which would count twice.
func (c *Collector) Trace() *snib.Trace {
	// Closures, because method values would copy each event once more.
	return &snib.Trace{
		WaitStarted: func(e snib.WaitStartedEvent) { c.resources.Name(e.Name).started.Add(1) },
		WaitEnded:   func(e snib.WaitEndedEvent) { c.waitEnded(&e) },
		WaitStalled: func(e snib.WaitStalledEvent) { c.backend(e.Backend).stalled.Add(1) },
		WaitResumed: func(e snib.WaitResumedEvent) { c.backend(e.Backend).stalled.Add(-1) },
		Renewed:     func(e snib.RenewedEvent) { c.renewed(&e) },
		Lost:        func(e snib.LostEvent) { c.lost(&e) },
		Released:    func(e snib.ReleasedEvent) { c.released(&e) },
		Regressed:   func(e snib.RegressedEvent) { c.resources.Name(e.Name).regressed.Add(1) },
	}
}

func (c *Collector) waitEnded(e *snib.WaitEndedEvent) {
	r := c.resources.Name(e.Name)
	r.wait.observe(e.Waited.Seconds())
	switch {
	case e.Err != nil:
		why := metriclabel.ReasonOf(e.Context, e.Err)
		r.failures[why].Add(1)
		if why == metriclabel.Backend {
			c.backend(e.Backend).errors[metriclabel.Acquire].Add(1)
		}
	case e.Joined:
		r.joined.Add(1)
	case e.Local:
		r.handedOver.Add(1)
	}
}

func (c *Collector) lost(e *snib.LostEvent) {
	r := c.resources.Name(e.Name)
	r.lost[metriclabel.CauseOf(e.Loss)].Add(1)
	r.hold.observe(e.Held.Seconds())
}

func (c *Collector) released(e *snib.ReleasedEvent) {
	r := c.resources.Name(e.Name)
	r.hold.observe(e.Held.Seconds())
	r.queue.observe(float64(e.Queued))
	switch {
	case e.Err == nil:
	case errors.Is(e.Err, snib.ErrLost): // the store refused the release
		r.lost[metriclabel.CauseOf(snib.LossRefused)].Add(1)
	default:
		c.backend(e.Backend).errors[metriclabel.Release].Add(1)
	}
}

func (c *Collector) renewed(e *snib.RenewedEvent) {
	b := c.backend(e.Backend)
	b.took.observe(e.Took.Seconds())
	if e.TTL > 0 {
		b.margin.observe(e.Margin.Seconds() / e.TTL.Seconds())
	}
	if metriclabel.Late(e) {
		c.resources.Name(e.Name).late.Add(1)
	}
	outcome := metriclabel.OutcomeOf(e.Err)
	b.renewals[outcome].Add(1)
	if outcome == metriclabel.Failed {
		b.errors[metriclabel.Renew].Add(1)
	}
}

// backend returns the counts for a backend. There is one for each kind of store in the program.
func (c *Collector) backend(name string) *backend {
	name = metriclabel.Clean(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backends[name]
	if b == nil {
		b = &backend{name: name, took: newHistogram(metriclabel.Latencies()), margin: newHistogram(metriclabel.Margins())}
		c.backends[name] = b
	}
	return b
}

// maxShards is how many resources a class has at most, each for some of its names: processors that
// change the same counts wait for each other.
const maxShards = 8

// A resource contains the counts for one class of names, or for some of its names.
type resource struct {
	class string

	started    atomic.Uint64 // waits
	wait       histogram     // of those that ended
	failures   [metriclabel.Reasons]atomic.Uint64
	joined     atomic.Uint64 // acquisitions that began no hold
	hold       histogram     // of those that ended
	queue      histogram     // at releases
	handedOver atomic.Uint64
	lost       [metriclabel.Causes]atomic.Uint64
	regressed  atomic.Uint64
	late       atomic.Uint64 // renewals
}

func newResource(class string) *resource {
	return &resource{class: class, wait: newHistogram(metriclabel.Waits()), hold: newHistogram(metriclabel.Holds()), queue: newHistogram(metriclabel.Lengths())}
}

// sumOf returns the sum of the shards of a class.
func sumOf(shards []*resource) *resource {
	sum := newResource(shards[0].class)
	for _, r := range shards {
		sum.add(r)
	}
	return sum
}

// add adds what another resource has counted. It reads ends before beginnings, so that nothing
// seems to have ended before it began.
func (r *resource) add(other *resource) {
	r.hold.add(&other.hold)
	r.queue.add(&other.queue)
	for i := range r.failures {
		r.failures[i].Add(other.failures[i].Load())
	}
	for i := range r.lost {
		r.lost[i].Add(other.lost[i].Load())
	}
	r.joined.Add(other.joined.Load())
	r.handedOver.Add(other.handedOver.Load())
	r.regressed.Add(other.regressed.Load())
	r.late.Add(other.late.Load())
	r.wait.add(&other.wait)
	r.started.Add(other.started.Load())
}

// A backend contains the counts for one kind of store.
type backend struct {
	name     string
	took     histogram
	margin   histogram
	stalled  atomic.Int64 // acquisitions now
	renewals [metriclabel.Outcomes]atomic.Uint64
	errors   [metriclabel.Ops]atomic.Uint64
}
