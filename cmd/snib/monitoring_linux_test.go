package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sniblock/snib/internal/livetest/promtest"
)

// TestMonitoring has a real Prometheus scrape a lock service and an export of one Redis. Each
// expression of the dashboard has a result, and the death of the server raises an alert. The export
// goes on, and TERM ends it.
func TestMonitoring(t *testing.T) {
	if out, err := promtest.Tool(t, "", "test", "rules", "monitoring/alerts_test.yml"); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
	for _, m := range regexp.MustCompile(`(?m)- alert: (\S+)`).FindAllStringSubmatch(read("monitoring/alerts.yml"), -1) {
		if !strings.Contains(read("../../docs/metrics.md"), "**"+m[1]+"**") {
			t.Errorf("docs/metrics.md does not say what to do about %s", m[1])
		}
	}
	node, dir := redisStore(t)
	_, service := startService(t, "redis://"+node.Addr())
	mustSnib(t, "run", "--url", service, "deploy", "--", "true")
	startHolder(t, "deploy")
	startWaiter(t, "deploy")
	log := filepath.Join(dir, "log")
	exporter := start(t, "sh", "-c", `exec snib export --listen 127.0.0.1:0 --every 1s 2>"$0"`, log)
	awaitText(t, log, "serving http://")
	export := regexp.MustCompile(`http://[0-9.:]+`).FindString(read(log))

	s := promtest.Start(t, "monitoring/alerts.yml", strings.TrimPrefix(service, "http://"), strings.TrimPrefix(export, "http://"))
	fill := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	if n := s.AwaitPanels(promtest.ReadDashboard(t, "monitoring/grafana.json"), fill); n < 10 {
		t.Errorf("the dashboard has %d expressions, want its 10 or more", n)
	}
	if n := s.AwaitRules(); n < 6 {
		t.Errorf("Prometheus has %d rules, want 6 or more", n)
	}
	node.Kill()
	if out, code := snib(t, "run", "--url", service, "--wait", "2s", "other", "--", "true"); code != 69 {
		t.Errorf("snib run on a dead store exited with %d: %s", code, out)
	}
	s.Await(`ALERTS{alertname="LockStoreDown",backend="redis"}`) // pending: it fires after a minute
	awaitText(t, log, "the store can't be examined: ")
	exporter.signal(syscall.SIGTERM)
	if code := exporter.wait(); code != 0 {
		t.Errorf("after TERM, snib export ends with %d: %s", code, read(log))
	}
}
