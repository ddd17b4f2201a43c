package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/livetest"
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

// A prometheusServer is a Prometheus that scrapes a collector and evaluates the rules.
type prometheusServer struct {
	t   *testing.T
	url string
}

func startPrometheus(t *testing.T, c *metrics.Collector) *prometheusServer {
	t.Helper()
	path := livetest.Binary(t, "prometheus", "prometheus")
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(target.Close)
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(
		"global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\nrule_files: [%q]\n"+
			"scrape_configs: [{job_name: test, static_configs: [{targets: [%q]}]}]\n", rules, target.Listener.Addr()))
	p := livetest.Start(t, livetest.Command{
		Name: "prometheus", Path: path, Dir: dir,
		Args: func(port int) []string {
			return []string{
				"--config.file=prometheus.yml", "--storage.tsdb.path=data",
				"--web.listen-address=" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			}
		},
		Ready: func(addr string) error {
			answer, err := http.Get("http://" + addr + "/-/ready")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s", answer.Status)
			}
			return nil
		},
	})
	return &prometheusServer{t, "http://" + p.Addr()}
}

// get sends a request to the API and decodes the answer.
func (s *prometheusServer) get(path string, query url.Values, into any) error {
	answer, err := http.Get(s.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var all struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		return err
	}
	if all.Status != "success" {
		return fmt.Errorf("%s: %s", all.Status, all.Error)
	}
	return json.Unmarshal(all.Data, into)
}

// query returns the number of series in the result of an expression.
func (s *prometheusServer) query(expr string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := s.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return len(data.Result), err
}

// await waits until an expression has a result.
func (s *prometheusServer) await(expr string) {
	s.t.Helper()
	livetest.Await(s.t, expr, func() error {
		n, err := s.query(expr)
		if err == nil && n == 0 {
			err = fmt.Errorf("it has no result")
		}
		return err
	})
}

// A dashboard is the part of Grafana's model that the test needs.
type dashboard struct {
	Title  string
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, RefID string }
	}
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
}

// TestOnPrometheus runs a real Prometheus that scrapes a real collector. It checks that
// each expression of the dashboard has a result, that the rules are loaded and
// evaluated, and that a lost hold raises an alert.
func TestOnPrometheus(t *testing.T) {
	c := usedCollector(t)
	s := startPrometheus(t, c)
	s.await("count_over_time(distributed_lock_held[1m]) > 3")

	var d dashboard
	if err := json.Unmarshal([]byte(file(t, "grafana/snib.json")), &d); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$resource", ".*", "$instance", ".*")
	ids, expressions := map[int]string{}, 0
	for _, p := range d.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("panels %q and %q have the same id", other, p.Title)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expressions++
			expr := fill.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q has an unknown variable: %s", p.Title, expr)
			}
			if n, err := s.query(expr); err != nil || n == 0 {
				t.Errorf("panel %q: %s has %d results, error %v", p.Title, expr, n, err)
			}
		}
	}
	if expressions < 30 {
		t.Errorf("the dashboard has %d expressions, want its 30 or more", expressions)
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" && v.Definition != fmt.Sprintf("label_values(distributed_lock_held, %s)", v.Name) {
			t.Errorf("variable %s is %q", v.Name, v.Definition)
		}
		if v.Type == "query" {
			s.await(fmt.Sprintf("distributed_lock_held{%s!=\"\"}", v.Name))
		}
	}

	c.Trace().Lost(snib.LostEvent{Event: snib.Event{Name: "invoices/1", Backend: "memory"}, Loss: snib.LossExpired})
	s.await(`ALERTS{alertname="LockLost",alertstate="firing",cause="expired",resource="invoices",severity="critical"}`)
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	// The rules are not all evaluated at the same time.
	livetest.Await(t, "evaluation of all rules", func() error {
		if err := s.get("/api/v1/rules", nil, &rules); err != nil {
			return err
		}
		if len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 9 {
			return fmt.Errorf("Prometheus has these rules: %+v", rules)
		}
		for _, r := range rules.Groups[0].Rules {
			if r.Health != "ok" {
				return fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
		return nil
	})
}
