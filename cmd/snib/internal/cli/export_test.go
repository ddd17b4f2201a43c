package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/promtest"
	"github.com/sniblock/snib/memlock"
)

// scrape returns the samples at url, as "name{label=value,...}".
func scrape(url string) (text string, samples map[string]float64, err error) {
	answer, err := http.Get(url)
	if err != nil {
		return "", nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", nil, fmt.Errorf("%s: %s: %w", answer.Status, body, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return "", nil, err
	}
	samples = make(map[string]float64)
	for name, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			samples[name+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return string(body), samples, nil
}

// startExport runs snib export, whose standard error nobody reads after the first line. It returns
// the URL of its metrics, and a function that ends it.
func startExport(t *testing.T, s *backend.Store) (url string, stop func()) {
	t.Helper()
	r, w := io.Pipe()
	e := &exportCommand{
		app: &app{out: io.Discard, err: w}, listen: "127.0.0.1:0",
		every: &duration{value: time.Second}, searchEvery: &duration{value: time.Second},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- e.export(ctx, s)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	m := regexp.MustCompile(`^snib: serving (http://\S+) for `).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("it says %q, %v", line, err)
	}
	return m[1], func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v, want nil", err)
		}
	}
}

// TestExport scrapes the metrics of a store with a holder, a waiter and a leak, which could not be
// searched at first, and has promtool check them.
func TestExport(t *testing.T) {
	var failures atomic.Int32
	failures.Store(1)
	leaked := findingsStore{memlock.New(), &failures, []driver.Status{
		{Name: "job/1", Holders: []driver.Holding{{ID: "o", Token: 1, Left: driver.NoExpiry}}, Waiters: []driver.Waiting{{Waited: time.Minute}}},
		{Name: "job/2", Holders: []driver.Holding{{ID: "p", Token: 2, Left: time.Minute}}},
	}}
	url, stop := startExport(t, &backend.Store{Driver: leaked, URL: "test:"})
	want := map[string]float64{
		"distributed_lock_store_locks{backend=memory,resource=job}":                2,
		"distributed_lock_store_waiting{backend=memory,resource=job}":              1,
		"distributed_lock_store_longest_wait_seconds{backend=memory,resource=job}": 60,
		"snib_store_leaks{backend=memory,kind=endless}":                            1,
		"snib_store_leaks{backend=memory,kind=dead}":                               0,
		"snib_store_grace_seconds{backend=memory}":                                 0,
	}
	var text string
	livetest.Await(t, "metrics", func() error {
		var samples map[string]float64
		var err error
		if text, samples, err = scrape(url); err != nil {
			return err
		}
		var missing error
		for sample, value := range want {
			if got, ok := samples[sample]; !ok || got != value {
				missing = errors.Join(missing, fmt.Errorf("%s = %v, %v, want %v", sample, got, ok, value))
			}
		}
		return missing
	})
	stop()
	if _, _, err := scrape(url); err == nil {
		t.Errorf("it still serves")
	}
	if out, err := promtest.Tool(t, text, "check", "metrics"); err != nil || out != "" {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// A findingsStore has locks that it lists. It fails a number of times to say more of one.
type findingsStore struct {
	*memlock.Driver
	failures *atomic.Int32
	locks    []driver.Status
}

func (f findingsStore) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	for _, st := range f.locks {
		if !yield(st) {
			break
		}
	}
	return nil
}

func (f findingsStore) Status(_ context.Context, name string) (driver.Status, error) {
	if f.failures.Add(-1) >= 0 {
		return driver.Status{}, errHalf
	}
	for _, st := range f.locks {
		if st.Name == name {
			return st, nil
		}
	}
	return driver.Status{}, nil
}

// TestExportOfVerdicts checks that each check has one series for each verdict, and that the worst
// of several findings counts.
func TestExportOfVerdicts(t *testing.T) {
	c := newStoreChecker(&app{}, &backend.Store{Driver: memlock.New()})
	c.graceEnd.Store(time.Now().Add(time.Hour).UnixMilli())
	c.export([]backend.Finding{
		{Check: "clock", Verdict: backend.Note, Ahead: new(-0.25)},
		{Check: "node a:1: clock", Verdict: backend.Good, Ahead: new(0.0)},
		{Check: "standby", Verdict: backend.Unmet},
		{Check: "standby", Verdict: backend.Good},
	})
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text := answer.Body.String()
	for _, want := range []string{
		`snib_store_check{backend="memory",check="clock",verdict="note"} 1`,
		`snib_store_check{backend="memory",check="clock",verdict="unmet"} 0`,
		`snib_store_check{backend="memory",check="standby",verdict="unmet"} 1`,
		`snib_store_check{backend="memory",check="standby",verdict="ok"} 0`,
		`snib_store_clock_ahead_seconds{backend="memory",check="clock"} -0.25`,
		`snib_store_clock_ahead_seconds{backend="memory",check="node a:1: clock"} 0`,
		`snib_store_grace_seconds{backend="memory"} 3`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "leaks") {
		t.Error("leaks are exported before they are known")
	}
}

// TestExportReportsAnOutageOnce checks that an outage is told once, and again after it has ended.
func TestExportReportsAnOutageOnce(t *testing.T) {
	var out strings.Builder
	c, failed := &storeChecker{app: &app{err: &out}}, false
	for _, err := range []error{errHalf, errHalf, nil, errHalf, context.Canceled} {
		if ok := c.succeeded(&failed, "looking failed", err); ok != (err == nil) {
			t.Errorf("succeeded(%v) = %v", err, ok)
		}
	}
	if want := strings.Repeat("snib: looking failed: the other half is down\n", 2); out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
}
