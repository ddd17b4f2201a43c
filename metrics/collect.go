package metrics

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sniblock/snib/metriclabel"
)

// prefix begins the names of all metrics.
const prefix = "distributed_lock_"

// vectors are all metrics but what a survey has found, which storeDescs describes.
// docs/reference/generated/metrics.md lists both.
type vectors struct {
	wait, hold, queue                           *prometheus.HistogramVec // by resource
	held, waiting                               *prometheus.GaugeVec
	failures, handedOver, lost, regressed, late *prometheus.CounterVec

	took, margin                     *prometheus.HistogramVec // by backend
	stalled, surveyed                *prometheus.GaugeVec
	renewals, errors, surveyFailures *prometheus.CounterVec

	all []prometheus.Collector
}

func newVectors() *vectors {
	v := new(vectors)
	v.wait = v.histogram([]float64{.001, .005, .01, .05, .1, .5, 1, 5}, "wait_seconds",
		"Time from the call of Acquire to its end, whether it got the lock or not.", "resource")
	v.failures = v.counter("failures_total", "Acquires that did not get the lock, by reason.", "resource", "reason")
	v.hold = v.histogram([]float64{.001, .01, .1, 1, 10, 60, 600, 3600}, "hold_seconds",
		"Time from the grant to the end of a hold.", "resource")
	v.held = v.gauge("held", "Holds of this process now.", "resource")
	v.waiting = v.gauge("waiting", "Acquires of this process that have not ended yet.", "resource")
	v.queue = v.histogram([]float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}, "queue_length",
		"How many waited in this process for a lock when it was released.", "resource")
	v.handedOver = v.counter("handovers_total",
		"Holds that were handed over within this process, without asking the store.", "resource")
	v.lost = v.counter("lost_total", "Holds that ended before Release, by cause.", "resource", "cause")
	v.regressed = v.counter("token_regressions_total",
		"Grants with a fencing token that is not above one granted before.", "resource")
	v.late = v.counter("late_renewals_total", "Renewals that were answered within the last third of their lease.",
		"resource")

	v.stalled = v.gauge("stalled", "Acquires of this process that wait for the store and not for a holder.", "backend")
	v.renewals = v.counter("renewals_total",
		"Renewals of leases, by outcome: refused if the lease is over, failed if the result is not known.",
		"backend", "outcome")
	v.margin = v.histogram([]float64{.05, .1, .2, 1.0 / 3, .4, .5, .6, .7}, "renewal_margin_ratio",
		"Part of the lease that was left when its renewal was answered.", "backend")
	v.took = v.histogram([]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5}, "renewal_seconds",
		"Time that the store took to answer a renewal.", "backend")
	v.errors = v.counter("backend_errors_total", "Operations that failed because of the store or the way to it.",
		"backend", "op")
	v.surveyed = v.gauge("store_survey_timestamp_seconds", "When the last survey of the store ended.", "backend")
	v.surveyFailures = v.counter("store_survey_failures_total", "Surveys of the store that failed.", "backend")
	return v
}

func (v *vectors) histogram(bounds []float64, name, help, label string) *prometheus.HistogramVec {
	return add(v, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: bounds},
		[]string{label}))
}

func (v *vectors) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return add(v, prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels))
}

func (v *vectors) gauge(name, help, label string) *prometheus.GaugeVec {
	return add(v, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, []string{label}))
}

// add adds a metric to those that a scrape reads.
func add[C prometheus.Collector](v *vectors, metric C) C {
	v.all = append(v.all, metric)
	return metric
}

// A resource contains the metrics for one class of names, so that an event need not look up each.
type resource struct {
	wait, hold, queue           prometheus.Observer
	held, waiting               prometheus.Gauge
	handedOver, regressed, late prometheus.Counter
	failures                    [metriclabel.Reasons]prometheus.Counter
	lost                        [metriclabel.Causes]prometheus.Counter
}

// newResource begins to export all metrics of a class, as zeros. Labels are cleaned before, so
// creating a metric can't fail.
func (v *vectors) newResource(class string) *resource {
	r := &resource{
		wait: v.wait.WithLabelValues(class), hold: v.hold.WithLabelValues(class), queue: v.queue.WithLabelValues(class),
		held: v.held.WithLabelValues(class), waiting: v.waiting.WithLabelValues(class),
		handedOver: v.handedOver.WithLabelValues(class), regressed: v.regressed.WithLabelValues(class),
		late: v.late.WithLabelValues(class),
	}
	for reason := range r.failures {
		r.failures[reason] = v.failures.WithLabelValues(class, metriclabel.Reason(reason).String())
	}
	for cause := range r.lost {
		r.lost[cause] = v.lost.WithLabelValues(class, metriclabel.Cause(cause).String())
	}
	return r
}

// A backend contains the metrics for one kind of store.
type backend struct {
	took, margin prometheus.Observer
	stalled      prometheus.Gauge
	renewals     [metriclabel.Outcomes]prometheus.Counter
	errors       [metriclabel.Ops]prometheus.Counter
}

func (v *vectors) newBackend(name string) *backend {
	b := &backend{took: v.took.WithLabelValues(name), margin: v.margin.WithLabelValues(name),
		stalled: v.stalled.WithLabelValues(name)}
	for outcome := range b.renewals {
		b.renewals[outcome] = v.renewals.WithLabelValues(name, metriclabel.Outcome(outcome).String())
	}
	for op := range b.errors {
		b.errors[op] = v.errors.WithLabelValues(name, metriclabel.Op(op).String())
	}
	return b
}

// storeDescs describe what a survey has found.
type storeDescs struct{ holds, waiting, longest, endless *prometheus.Desc }

func newStoreDescs() storeDescs {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"store_"+name, help, []string{"backend", "resource"}, nil)
	}
	return storeDescs{
		holds:   desc("locks", "Holds that the store has, by the last survey."),
		waiting: desc("waiting", "Waiters that the store has, by the last survey."),
		longest: desc("longest_wait_seconds",
			"How long the waiter has waited that has waited longest, by the last survey."),
		endless: desc("locks_without_expiry", "Holds that the store will never end by itself, by the last survey."),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, metric := range c.vectors.all {
		metric.Describe(ch)
	}
	for _, desc := range []*prometheus.Desc{c.store.holds, c.store.waiting, c.store.longest, c.store.endless} {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, metric := range c.vectors.all {
		metric.Collect(ch)
	}
	c.mu.Lock()
	surveys := maps.Clone(c.surveys) // so that a survey does not wait for a scrape
	c.mu.Unlock()
	for backend, found := range surveys {
		gauge := func(d *prometheus.Desc, value float64, class string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, backend, class)
		}
		for class, p := range found {
			gauge(c.store.holds, float64(p.holds), class)
			gauge(c.store.waiting, float64(p.waiters), class)
			gauge(c.store.longest, p.longest.Seconds(), class)
			gauge(c.store.endless, float64(p.endless), class)
		}
	}
}
