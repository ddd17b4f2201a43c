package metrics_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/promtest"
	"github.com/sniblock/snib/metrics"
)

// usedCollector returns a collector that has seen waits, holds, a renewal and a survey.
func usedCollector(t *testing.T) *metrics.Collector {
	t.Helper()
	c := newCollector(t, metrics.Options{Resources: []string{"invoices"}})
	l := open(t, memory(), snib.Tracing(c.Trace()))
	release(t, acquire(t, l, "invoices/1"))
	c.Trace().Renewed(snib.RenewedEvent{Event: snib.Event{Name: "invoices/1", Backend: "memory"}, TTL: time.Second,
		Margin: time.Second / 2})
	surveyOnce(t, c)
	return c
}

// surveyOnce has the collector survey a store that contains one lock.
func surveyOnce(t *testing.T, c *metrics.Collector) {
	t.Helper()
	d := memory()
	held := acquire(t, open(t, d), "invoices/1")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Survey(ctx, d, time.Minute) // it ends with ctx
	}()
	livetest.Await(t, "survey", func() error {
		if _, ok := read(t, c)[`distributed_lock_store_locks{backend="memory",resource="invoices"}`]; !ok {
			return fmt.Errorf("nothing was found yet")
		}
		return nil
	})
	stop()
	<-ended
	release(t, held)
}

// startPrometheus starts a Prometheus that scrapes a collector and evaluates the rules.
func startPrometheus(t *testing.T, c *metrics.Collector) *promtest.Server {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(target.Close)
	return promtest.Start(t, "alerts.yml", target.Listener.Addr().String())
}

// TestOnPrometheus runs a real Prometheus that scrapes a real collector. It checks that
// each expression of the dashboard has a result, that the rules are loaded and
// evaluated, and that a lost hold raises an alert.
func TestOnPrometheus(t *testing.T) {
	c := usedCollector(t)
	s := startPrometheus(t, c)
	s.Await("count_over_time(distributed_lock_held[1m]) > 3")

	d := promtest.ReadDashboard(t, "grafana/snib.json")
	fill := strings.NewReplacer("$__rate_interval", "1m", "$resource", ".*", "$instance", ".*")
	if n := s.AwaitPanels(d, fill); n < 30 {
		t.Errorf("the dashboard has %d expressions, want its 30 or more", n)
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" && v.Definition != fmt.Sprintf("label_values(distributed_lock_held, %s)", v.Name) {
			t.Errorf("variable %s is %q", v.Name, v.Definition)
		}
		if v.Type == "query" {
			s.Await(fmt.Sprintf("distributed_lock_held{%s!=\"\"}", v.Name))
		}
	}

	c.Trace().Lost(snib.LostEvent{Event: snib.Event{Name: "invoices/1", Backend: "memory"}, Loss: snib.LossExpired})
	s.Await(`ALERTS{alertname="LockLost",alertstate="firing",cause="expired",resource="invoices",severity="critical"}`)
	if n := s.AwaitRules(); n < 9 {
		t.Errorf("Prometheus has %d rules, want 9 or more", n)
	}
}
