package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A tableJSON is a table as a line of a results file: every figure of every run.
type tableJSON struct {
	On       string    `json:"on"` // the machine and the versions
	Store    string    `json:"store,omitempty"`
	Scenario string    `json:"scenario"`
	Variant  string    `json:"variant"`
	Beside   string    `json:"beside,omitempty"` // what ratios are to
	Runs     []runJSON `json:"runs"`
	Aims     []verdict `json:"aims,omitempty"`
}

type runJSON struct {
	Peer    string             `json:"peer"`
	Rep     int                `json:"rep"`
	Error   string             `json:"error,omitempty"`
	Figures map[string]float64 `json:"figures,omitempty"` // by column; missing if there is none
}

// jsonValue returns the table for JSON. about describes the machine and the versions.
func (t *table) jsonValue(about string) tableJSON {
	var runs []runJSON
	for _, r := range t.runs {
		raw := runJSON{Peer: r.peer, Rep: r.rep, Figures: map[string]float64{}}
		put := func(title string, f float64) {
			if !math.IsNaN(f) && !math.IsInf(f, 0) { // JSON has neither
				raw.Figures[title] = f
			}
		}
		if r.err != nil {
			raw.Error = r.err.Error()
		} else {
			put("foreign cores", r.foreignCores)
			put("gave up", float64(r.gaveUp().N))
			put("lost", float64(r.lost().N))
			for _, c := range t.columns() {
				put(c.title, c.of(r))
			}
		}
		runs = append(runs, raw)
	}
	return tableJSON{about, storesOf([]*table{t}), t.scenario.name, t.variant.title(), t.mainBase(), runs, t.judge()}
}

// publish rewrites the parts of the pages in root that are generated from a results file, which
// -o json has written.
func publish(root, file string) error {
	pages, err := render(root, file)
	for page, text := range pages {
		err = errors.Join(err, os.WriteFile(page, []byte(text), 0o644))
	}
	return err
}

// generated matches a part of a page that is generated: the results file, the kind, the scenario,
// the peers if not all are wanted, and the content.
var generated = regexp.MustCompile(`(?s)<!-- begin: bench (\S+) (chart|figures) of (\S+?)(?: on (\S+))? -->\n.*?<!-- end -->`)

// render returns the new texts of the pages in root that have parts generated from a file.
func render(root, file string) (map[string]string, error) {
	tables, err := readTables(file)
	if err != nil {
		return nil, err
	}
	pages := map[string]string{}
	for _, folder := range []string{"docs", "docs/backends", "cmd/sniblab/internal/bench/results"} {
		names, _ := filepath.Glob(filepath.Join(root, folder, "*.md")) // the pattern is valid
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			found := false
			text = generated.ReplaceAllFunc(text, func(part []byte) []byte {
				m := generated.FindSubmatch(part)
				if string(m[1]) != filepath.Base(file) {
					return part
				}
				found = true
				if !slices.ContainsFunc(tables, func(t tableJSON) bool { return t.Scenario == string(m[3]) }) {
					err = errors.Join(err, fmt.Errorf("%s: there is no scenario %q in %s", name, m[3], file))
				}
				begin, _, _ := bytes.Cut(part, []byte("\n"))
				var b bytes.Buffer
				fmt.Fprintf(&b, "%s\n\n", begin)
				write := writeCharts
				if string(m[2]) == "figures" {
					write = writeFigures
				}
				write(&b, tables, string(m[3]), string(m[4]))
				b.WriteString("<!-- end -->")
				return b.Bytes()
			})
			if err != nil {
				return nil, err
			}
			if found {
				pages[name] = string(text)
			}
		}
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("no page below %s has a part that begins with \"<!-- begin: bench %s\"", root, filepath.Base(file))
	}
	return pages, nil
}

func readTables(file string) (all []tableJSON, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := json.NewDecoder(f); ; {
		var t tableJSON
		switch err := lines.Decode(&t); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, t)
	}
}

// peers returns the peers of a table, best first. If only is not empty, it is a comma-separated
// list of those that are wanted, and gives their order.
func (t *tableJSON) peers(only string) []string {
	if only != "" {
		return strings.Split(only, ",")
	}
	var all []string
	for _, r := range t.Runs {
		if !slices.Contains(all, r.Peer) {
			all = append(all, r.Peer)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int {
		return cmp.Compare(t.spread(b, cyclesPerSecond).median, t.spread(a, cyclesPerSecond).median)
	})
	return all
}

func (t *tableJSON) spread(peer, column string) spread {
	var figures []float64
	for _, r := range t.Runs {
		if f, ok := r.Figures[column]; ok && r.Peer == peer {
			figures = append(figures, f)
		}
	}
	return spreadOf(figures)
}

// The scale of charts: a bar begins at chartFrom, and ten times as much is decade characters more.
const chartFrom, decade = 10, 8

// writeCharts writes a chart for each variant of a scenario. The length of a bar is the logarithm
// of the cycles per second, because the slowest store and the fastest one differ by orders of
// magnitude.
func writeCharts(w io.Writer, tables []tableJSON, name, only string) {
	fmt.Fprint(w, "```text\n")
	first := true
	for _, t := range tables {
		if t.Scenario != name {
			continue
		}
		if !first {
			fmt.Fprintln(w)
		}
		first = false
		fmt.Fprintf(w, "%s\n%-16s  %8s  %8s  %8s  |10     |100    |1k     |10k    |100k   |1M\n", t.Variant, "", "cycles/s", "wait p50", "p99")
		for _, peer := range t.peers(only) {
			rate := t.spread(peer, cyclesPerSecond).median
			bar := ""
			if rate > chartFrom {
				bar = "  " + strings.Repeat("█", max(1, int(math.Round(decade*math.Log10(rate/chartFrom)))))
			}
			fmt.Fprintf(w, "%-16s  %8s  %8s  %8s%s\n", peer, formatFigure(rate),
				formatMicros(t.spread(peer, acquireP50).median), formatMicros(t.spread(peer, acquireP99).median), bar)
		}
	}
	fmt.Fprint(w, "```\n\n")
}

// formatMicros formats a number of microseconds as a duration with about two digits.
func formatMicros(f float64) string {
	if math.IsNaN(f) {
		return formatFigure(f)
	}
	d := time.Duration(f * float64(time.Microsecond))
	unit := time.Nanosecond
	for unit*100 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}

// writeFigures writes the conditions, and a table for each variant of a scenario: medians, with the
// least and the most if there were several runs.
func writeFigures(w io.Writer, tables []tableJSON, name, only string) {
	all := scenarios()
	i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return
	}
	conditions := ""
	for _, t := range tables {
		if t.Scenario != name {
			continue
		}
		if t.On != conditions {
			conditions = t.On
			fmt.Fprintf(w, "%s\n\n", conditions)
		}
		head := []string{"lock"}
		columns := slices.DeleteFunc(slices.Clone(all[i].columns), func(c column) bool { return !t.has(c.title) })
		for _, c := range columns {
			head = append(head, c.title)
		}
		rows := [][]string{head}
		for _, peer := range t.peers(only) {
			row := []string{peer}
			for _, c := range columns {
				row = append(row, t.spread(peer, c.title).String())
			}
			rows = append(rows, row)
		}
		fmt.Fprintf(w, "**%s**\n\n", t.Variant)
		writeRows(w, rows, 1, "markdown")
		for _, r := range t.Runs {
			if r.Error != "" {
				fmt.Fprintf(w, "- %s failed in repetition %d: %s\n\n", r.Peer, r.Rep+1, r.Error)
			}
		}
	}
}

// has reports whether a run has a figure in a column.
func (t *tableJSON) has(column string) bool {
	return slices.ContainsFunc(t.Runs, func(r runJSON) bool { _, ok := r.Figures[column]; return ok })
}
