package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublish generates the parts of a page from two repetitions of two peers.
func TestPublish(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"docs", "cmd/sniblab/internal/bench/results"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := func(peer string, rep int, rate, p50, p99 float64) runJSON {
		return runJSON{Peer: peer, Rep: rep, Figures: map[string]float64{cyclesPerSecond: rate, acquireP50: p50, acquireP99: p99}}
	}
	var results bytes.Buffer
	for _, tab := range []tableJSON{
		{On: "a machine", Scenario: "stores", Variant: "own keys", Runs: []runJSON{
			run("slow", 0, 90, 1100, 2500), run("fast", 0, 100_000, 8.25, 99), run("slow", 1, 110, 1300, 2600), run("fast", 1, 100_000, 8.25, 99),
		}},
		{On: "a machine", Scenario: "stores", Variant: "one key", Runs: []runJSON{
			run("slow", 0, 2, 1_500_000, 3_000_000), {Peer: "fast", Error: "it did not end"},
		}},
		{On: "a machine", Scenario: "persistence", Variant: "one key", Runs: []runJSON{run("slow", 0, 1000, 1, 1)}},
	} {
		if err := json.NewEncoder(&results).Encode(tab); err != nil {
			t.Fatal(err)
		}
	}
	file, page := filepath.Join(root, "cmd/sniblab/internal/bench/results/day.jsonl"), filepath.Join(root, "docs/page.md")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, results.String())
	const before = `Before.

<!-- begin: bench day.jsonl chart of stores -->
old
<!-- end -->

Between.

<!-- begin: bench day.jsonl figures of persistence on slow -->
<!-- end -->

<!-- begin: bench night.jsonl chart of stores -->
of another file
<!-- end -->
`
	write(page, before)
	want := strings.NewReplacer("old\n", "\n```text"+`
own keys
                  cycles/s  wait p50       p99  |10     |100    |1k     |10k    |100k   |1M
fast                100.0k     8.3µs      99µs  ████████████████████████████████
slow                   100     1.2ms     2.6ms  ████████

one key
                  cycles/s  wait p50       p99  |10     |100    |1k     |10k    |100k   |1M
slow                  2.00      1.5s        3s
fast                     –         –         –
`+"```\n\n", "on slow -->\n", `on slow -->

a machine

**one key**

| lock | cycles/s | acquire p50 µs | acquire p99 µs |
|---|---:|---:|---:|
| slow | 1000 | 1.00 | 1.00 |

`).Replace(before)
	for range 2 { // the second time changes nothing
		if err := publish(root, file); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("the page is\n%s\nwant\n%s", got, want)
		}
	}

	for name, text := range map[string]string{"no part": "Text.\n", "another scenario": "<!-- begin: bench day.jsonl chart of none -->\n<!-- end -->\n"} {
		write(page, text)
		if err := publish(root, file); err == nil {
			t.Errorf("publish to a page with %s = no error", name)
		}
	}
	if err := publish(root, filepath.Join(root, "cmd/sniblab/internal/bench/results/none.jsonl")); err == nil {
		t.Error("publish of a file that does not exist = no error")
	}
}

// TestPagesAreCurrent compares the pages with what is generated from the results files.
func TestPagesAreCurrent(t *testing.T) {
	files, err := filepath.Glob("results/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		pages, err := render("../../../..", file)
		if err != nil {
			t.Error(err)
		}
		for page, want := range pages {
			got, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("%s is not what %s says; \"go run ./cmd/sniblab/internal/bench -publish cmd/sniblab/internal/bench/%s\" writes it", page, file, file)
			}
		}
	}
}
