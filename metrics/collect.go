package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sniblock/snib/metriclabel"
)

// prefix begins the names of all metrics.
const prefix = "distributed_lock_"

// descs are the descriptions of all metrics. docs/reference/generated/metrics.md lists them.
type descs struct {
	wait, failures, reasons, hold, held, waiting, queue, handOvers *prometheus.Desc
	lost, regressed, late, folded                                  *prometheus.Desc

	stalled, renewals, margin, took, errors *prometheus.Desc

	stored, storeWaiting, longest, endless, surveyed, surveyFailures *prometheus.Desc
}

func newDescs() descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return descs{
		wait: desc("wait_seconds", "Time from the call of Acquire to its end, whether it got the lock or not.",
			"resource"),
		failures: desc("failures_total", "Acquires that did not get the lock.", "resource"),
		reasons:  desc("failure_reasons_total", "Acquires that did not get the lock, by reason.", "resource", "reason"),
		hold:     desc("hold_seconds", "Time from the grant to the end of a hold.", "resource"),
		held:     desc("held", "Holds of this process now.", "resource"),
		waiting:  desc("waiting", "Acquires of this process that have not ended yet.", "resource"),
		queue:    desc("queue_length", "How many waited in this process for a lock when it was released.", "resource"),
		handOvers: desc("handovers_total", "Holds that were handed over within this process, without asking the store.",
			"resource"),
		lost: desc("lost_total", "Holds that ended before Release, by cause.", "resource", "cause"),
		regressed: desc("token_regressions_total", "Grants with a fencing token that is not above one granted before.",
			"resource"),
		late: desc("late_renewals_total", "Renewals that were answered within the last third of their lease.", "resource"),
		folded: desc("resource_overflows_total",
			"How often a name was counted as other because there were too many resources."),

		stalled:  desc("stalled", "Acquires of this process that wait for the store and not for a holder.", "backend"),
		renewals: desc("renewals_total", "Renewals of leases, by outcome: refused if the lease is over, failed if the result is not known.", "backend", "outcome"),
		margin:   desc("renewal_margin_ratio", "Part of the lease that was left when its renewal was answered.", "backend"),
		took:     desc("renewal_seconds", "Time that the store took to answer a renewal.", "backend"),
		errors: desc("backend_errors_total", "Operations that failed because of the store or the way to it.", "backend",
			"op"),

		stored:       desc("store_locks", "Holds that the store has, by the last survey.", "backend", "resource"),
		storeWaiting: desc("store_waiting", "Waiters that the store has, by the last survey.", "backend", "resource"),
		longest: desc("store_longest_wait_seconds",
			"How long the waiter has waited that has waited longest, by the last survey.", "backend", "resource"),
		endless: desc("store_locks_without_expiry",
			"Holds that the store will never end by itself, by the last survey.", "backend", "resource"),
		surveyed:       desc("store_survey_timestamp_seconds", "When the last survey of the store ended.", "backend"),
		surveyFailures: desc("store_survey_failures_total", "Surveys of the store that failed.", "backend"),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	d := &c.descs
	for _, desc := range []*prometheus.Desc{
		d.wait, d.failures, d.reasons, d.hold, d.held, d.waiting, d.queue, d.handOvers, d.lost, d.regressed, d.late, d.folded,
		d.stalled, d.renewals, d.margin, d.took, d.errors, d.stored, d.storeWaiting, d.longest, d.endless, d.surveyed,
		d.surveyFailures,
	} {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	out := writer{ch}
	out.counter(c.descs.folded, c.resources.Folded())
	for _, shards := range c.resources.All() {
		c.collectResource(out, sumOf(shards))
	}
	backends, surveys := c.perStore()
	for _, b := range backends {
		c.collectBackend(out, b)
	}
	for _, s := range surveys {
		c.collectSurvey(out, &s)
	}
}

// perStore returns the backends, and copies of the surveys. So events and surveys
// do not wait for a scrape.
func (c *Collector) perStore() (backends []*backend, surveys []survey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.surveys {
		surveys = append(surveys, *s)
	}
	return slices.Collect(maps.Values(c.backends)), surveys
}

func (c *Collector) collectResource(out writer, r *resource) {
	d := &c.descs
	failed := uint64(0)
	for reason := range r.failures {
		n := r.failures[reason].Load()
		failed += n
		out.counter(d.reasons, n, r.class, metriclabel.Reason(reason).String())
	}
	for cause := range r.lost {
		out.counter(d.lost, r.lost[cause].Load(), r.class, metriclabel.Cause(cause).String())
	}
	out.counter(d.failures, failed, r.class)
	out.gauge(d.waiting, difference(r.started.Load(), r.wait.count()), r.class)
	out.gauge(d.held, difference(r.wait.count(), failed, r.joined.Load(), r.hold.count()), r.class)
	out.counter(d.handOvers, r.handedOver.Load(), r.class)
	out.counter(d.regressed, r.regressed.Load(), r.class)
	out.counter(d.late, r.late.Load(), r.class)
	out.ch <- r.wait.metric(d.wait, r.class)
	out.ch <- r.hold.metric(d.hold, r.class)
	out.ch <- r.queue.metric(d.queue, r.class)
}

func (c *Collector) collectBackend(out writer, b *backend) {
	d := &c.descs
	out.gauge(d.stalled, float64(b.stalled.Load()), b.name)
	for outcome := range b.renewals {
		out.counter(d.renewals, b.renewals[outcome].Load(), b.name, metriclabel.Outcome(outcome).String())
	}
	for op := range b.errors {
		out.counter(d.errors, b.errors[op].Load(), b.name, metriclabel.Op(op).String())
	}
	out.ch <- b.margin.metric(d.margin, b.name)
	out.ch <- b.took.metric(d.took, b.name)
}

// difference returns n minus all of less, or 0 if that is negative: counters that are read
// one after the other can be inconsistent.
func difference(n uint64, less ...uint64) float64 {
	left := float64(n)
	for _, l := range less {
		left -= float64(l)
	}
	return max(0, left)
}

// A writer sends the metrics of a scrape. Labels are cleaned before, so creating a
// metric can't fail.
type writer struct{ ch chan<- prometheus.Metric }

func (w writer) counter(d *prometheus.Desc, n uint64, labels ...string) {
	w.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (w writer) gauge(d *prometheus.Desc, v float64, labels ...string) {
	w.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}
