package metrics_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sniblock/snib/internal/livetest/promtest"
	"github.com/sniblock/snib/metrics"
)

func TestAlertRules(t *testing.T) {
	if out, err := promtest.Tool(t, "", "check", "rules", "alerts.yml"); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
	if out, err := promtest.Tool(t, "", "test", "rules", "alerts_test.yml"); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// TestGrafanaAlert checks that Grafana's alert is the same as the one of Prometheus, which promtool
// checks, and that it names the data source, the dashboard and the panel that are provisioned.
func TestGrafanaAlert(t *testing.T) {
	const alert, ofGrafana = "LockWaitLong", "example/grafana/alerting/snib.yaml"
	grafana := file(t, ofGrafana)
	if !strings.Contains(grafana, "title: "+alert+"\n") {
		t.Errorf("%s has no rule %s", ofGrafana, alert)
	}
	_, prometheus, _ := strings.Cut(file(t, "alerts.yml"), "- alert: "+alert+"\n")
	prometheus, _, _ = strings.Cut(prometheus, "\n\n")
	for _, field := range []string{`expr: >-\n((?: +[^ ].*\n)+?) +(?:- refId|for):`, `\n +for: (.+)`, `labels: (.+)`,
		`summary: (.+)`} {
		pattern := regexp.MustCompile(field)
		got, want := pattern.FindStringSubmatch(grafana), pattern.FindStringSubmatch(prometheus)
		if got == nil || want == nil {
			t.Fatalf("%s does not match %s in both files: %q, %q", alert, field, got, want)
		}
		if got, want := strings.Fields(got[1]), strings.Fields(want[1]); !slices.Equal(got, want) {
			t.Errorf("%s: Grafana's rule has %q, that of Prometheus %q", field, got, want)
		}
	}
	for of, name := range map[string]string{
		"datasourceUid: (prometheus)\n": "example/grafana/datasources/prometheus.yaml",
		"dashboardUid: (.+)\n":          "grafana/snib.json",
		"panelId: (.+)\n":               "grafana/snib.json",
	} {
		id := regexp.MustCompile(of).FindStringSubmatch(grafana)
		if id == nil || !regexp.MustCompile(`\b(?:uid|id)"?: "?`+id[1]+`\b`).MatchString(file(t, name)) {
			t.Errorf("%s: %s is not in %s: %q", ofGrafana, of, name, id)
		}
	}
}

// TestExpositionIsGood checks that promtool accepts names, units, types and help texts.
func TestExpositionIsGood(t *testing.T) {
	out, err := promtest.Tool(t, exposition(t, usedCollector(t)), "check", "metrics")
	if err != nil || out != "" {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// exposition returns what a collector exports, in the text format. A registry checks it.
func exposition(t testing.TB, c *metrics.Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("scrape: %s", answer.Body)
	}
	return answer.Body.String()
}

var metricName = regexp.MustCompile(`\bdistributed_lock_[a-z_]+`)

// TestNamedMetricsExist checks that all metrics in the rules, the dashboard and the page are
// exported. TestMetricsPage checks the list of all.
func TestNamedMetricsExist(t *testing.T) {
	exported := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(exposition(t, usedCollector(t)),
		-1) {
		exported[m[1]] = true
		if m[2] == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				exported[m[1]+part] = true
			}
		}
	}
	if len(exported) < 20 {
		t.Fatalf("only %d names are exported: %v", len(exported), exported)
	}
	const page = "../docs/metrics.md"
	for _, name := range []string{"alerts.yml", "alerts_test.yml", "grafana/snib.json", page} {
		named := metricName.FindAllString(file(t, name), -1)
		if len(named) == 0 {
			t.Errorf("%s names no metric", name)
		}
		for _, metric := range named {
			if !exported[metric] {
				t.Errorf("%s names %s, which is not exported", name, metric)
			}
		}
	}
	text := file(t, page)
	expressions := regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(text, -1)
	if len(expressions) == 0 {
		t.Errorf("%s shows no expression", page)
	}
	for _, m := range expressions {
		if !strings.Contains(file(t, "alerts.yml"), m[1]+"\n") {
			t.Errorf("%s shows an expression that is not in alerts.yml: %s", page, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)- alert: (\S+)`).FindAllStringSubmatch(file(t, "alerts.yml"), -1) {
		if !strings.Contains(text, "### "+m[1]+"\n") {
			t.Errorf("%s does not say what to do about %s", page, m[1])
		}
	}
}

func file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")))
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
