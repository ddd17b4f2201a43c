package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// TestExample checks that the example exports its waits, surveys its store, and
// ends with its context.
func TestExample(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener) }()
	busy := regexp.MustCompile(`(?m)^distributed_lock_wait_seconds_count\{resource="invoices"\} [1-9]`)
	surveyed := regexp.MustCompile(`(?m)^distributed_lock_store_survey_timestamp_seconds\{backend="memory"\} [1-9]`)
	livetest.Await(t, "waits and a survey", func() error {
		answer, err := http.Get("http://" + listener.Addr().String() + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && !(busy.Match(text) && surveyed.Match(text)) {
			err = fmt.Errorf("%s", text)
		}
		return err
	})
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("run = %v, want %v", err, context.Canceled)
	}
}

// TestProvisioning checks that the files that compose.yaml mounts exist, and that
// Prometheus accepts its configuration.
func TestProvisioning(t *testing.T) {
	compose, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mounts := regexp.MustCompile(`(?m)^ +- (\.\S*?):\S+:ro$`).FindAllSubmatch(compose, -1)
	if len(mounts) != 4 {
		t.Errorf("compose.yaml has %d mounts, want 4", len(mounts))
	}
	for _, m := range mounts {
		if _, err := os.Stat(string(m[1])); err != nil {
			t.Errorf("compose.yaml mounts a file that does not exist: %v", err)
		}
	}
	if found, err := filepath.Glob("../grafana/*.json"); err != nil || len(found) != 1 {
		t.Errorf("dashboards to provision: %q, %v; want one", found, err)
	}
	for _, folder := range []string{"alerting", "dashboards", "datasources"} { // the names that Grafana reads
		if found, err := filepath.Glob(filepath.Join("grafana", folder, "*.yaml")); err != nil || len(found) != 1 {
			t.Errorf("files to provision %s: %q, %v; want one", folder, found, err)
		}
	}
	promtool := livetest.Binary(t, "prometheus", "promtool")
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "config", "--syntax-only",
		"prometheus.yml").CombinedOutput(); err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
}
