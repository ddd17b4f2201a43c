package metrics_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricsPage lists all metrics. It is made of what a collector exports.
const metricsPage = "../docs/reference/generated/metrics.md"

// TestMetricsPage compares the list of metrics with what a collector exports. UPDATE=1 rewrites it.
func TestMetricsPage(t *testing.T) {
	want := metricsTable(exposition(t, usedCollector(t)))
	if os.Getenv("UPDATE") != "" {
		write(t, metricsPage, want)
	}
	if file(t, metricsPage) != want {
		t.Errorf("%s is not what the collector exports; UPDATE=1 go test writes it", metricsPage)
	}
}

// metricsTable returns the page for a text in the format of Prometheus.
func metricsTable(text string) string {
	var b strings.Builder
	b.WriteString("# All metrics\n\nMade by `UPDATE=1 go test ./metrics -run TestMetricsPage`. " +
		"[Metrics](../../metrics.md) says how to use them.\n\n| metric | kind | labels | what |\n| --- | --- | --- | --- |\n")
	help := ""
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			_, help, _ = strings.Cut(rest, " ")
		}
		rest, ok := strings.CutPrefix(line, "# TYPE ")
		if !ok {
			continue
		}
		name, kind, _ := strings.Cut(rest, " ")
		end := slices.IndexFunc(lines[i+1:], func(line string) bool { return line == "" || line[0] == '#' })
		labels, bounds := labelsOf(lines[i+1 : i+1+end])
		if bounds != "" {
			kind += ": " + bounds
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, kind, labels, strings.TrimSuffix(help, "."))
	}
	return b.String()
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// labelsOf returns the labels of the series of a metric, each with its values unless they depend on
// the program, and the bounds of a histogram.
func labelsOf(series []string) (labels, bounds string) {
	var names []string
	values := map[string][]string{}
	for _, line := range series {
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			if values[m[1]] == nil && m[1] != "le" {
				names = append(names, m[1])
			}
			if !slices.Contains(values[m[1]], m[2]) {
				values[m[1]] = append(values[m[1]], m[2])
			}
		}
	}
	for i, name := range names {
		names[i] = "`" + name + "`"
		if name != "resource" && name != "backend" {
			names[i] += " (" + strings.Join(values[name], ", ") + ")"
		}
	}
	return strings.Join(names, ", "), strings.Join(slices.DeleteFunc(values["le"], func(le string) bool { return le == "+Inf" }), " ")
}
