package cli

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sniblock/snib/serve"
)

// serveMetrics are the metrics of one replica of the lock service. docs/serve.md explains them.
type serveMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	service  *serve.Service // set before the first request
	registry *prometheus.Registry
}

// newServeMetrics returns the metrics of a service over a store of a backend.
func newServeMetrics(backend string) (*serveMetrics, error) {
	m := &serveMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "distributed_lock_service_requests_total", Help: "Requests that were answered.",
		}, []string{"path", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "distributed_lock_service_request_seconds",
			Help:    "Time from a request to the end of its answer, with the time that it waited for a lock.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30},
		}, []string{"path"}),
		registry: prometheus.NewRegistry(),
	}
	store := prometheus.Labels{"backend": backend}
	return m, errors.Join(
		m.registry.Register(m.requests), m.registry.Register(m.seconds),
		m.gauge("waits", "Requests that wait for a lock.", nil, func(s serve.Stats) float64 { return float64(s.Waits) }),
		m.gauge("places", "Acquisitions that have a place in a queue.", nil,
			func(s serve.Stats) float64 { return float64(s.Places) }),
		m.gauge("streams", "Clients that listen to events.", nil, func(s serve.Stats) float64 { return float64(s.Streams) }),
		m.gauge("store_up", "Whether the store answers.", store,
			func(s serve.Stats) float64 { return map[bool]float64{true: 1}[s.StoreUp] }),
		m.gauge("grace_seconds", "How long the store still grants nothing.", store,
			func(s serve.Stats) float64 { return s.Grace.Seconds() }),
		m.registry.Register(collectors.NewBuildInfoCollector()),
		m.registry.Register(collectors.NewGoCollector()),
		m.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
}

// gauge registers a gauge of what the service is doing.
func (m *serveMetrics) gauge(name, help string, labels prometheus.Labels, value func(serve.Stats) float64) error {
	opts := prometheus.GaugeOpts{Name: "distributed_lock_service_" + name, Help: help, ConstLabels: labels}
	return m.registry.Register(prometheus.NewGaugeFunc(opts, func() float64 { return value(m.service.Stats()) }))
}

// observe counts a request. Clients may make up paths, so those outside the API are one.
func (m *serveMetrics) observe(e serve.Exchange) {
	path := e.Path
	if path == "" {
		path = "other"
	}
	m.requests.WithLabelValues(path, strconv.Itoa(e.Status)).Inc()
	m.seconds.WithLabelValues(path).Observe(e.Took.Seconds())
}

func (m *serveMetrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
