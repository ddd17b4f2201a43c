package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A column is a figure that each run has.
type column struct {
	title  string
	of     func(*run) float64 // NaN if the run has no such figure
	spread bool               // shown with its range
}

// Columns that several scenarios have.
func perSecond() column {
	return column{"ops/s", func(r *run) float64 { return r.ops() / r.window.Seconds() }, true}
}

// waited returns a column with a percentile of the time from the first attempt to
// success; 100 is the longest.
func waited(title string, percent float64, unit time.Duration) column {
	return column{title, func(r *run) float64 {
		if r.waits.TotalCount() == 0 {
			return math.NaN()
		}
		return float64(r.waits.ValueAtPercentile(percent)) / float64(unit)
	}, percent == 50}
}

func allocsPerOp() column {
	return column{"allocs/op", perOp(func(r *run) float64 {
		return r.sum(func(p *result) float64 { return float64(p.Mallocs) })
	}), false}
}

func bytesPerOp() column {
	return column{"B/op", perOp(func(r *run) float64 {
		return r.sum(func(p *result) float64 { return float64(p.Bytes) })
	}), false}
}

func commandsPerOp() column {
	return column{"cmds/op", perOp(func(r *run) float64 { return float64(r.server.Commands) }), false}
}

func readsPerOp() column {
	return column{"reads/op", perOp(func(r *run) float64 { return float64(r.server.Reads) }), false}
}

func clientCPUPerOp() column {
	return column{"CPU µs/op", perOp(func(r *run) float64 { return r.clientCPU().Seconds() * 1e6 }), false}
}

func serverCPUPerOp() column {
	return column{"server µs/op", perOp(func(r *run) float64 { return r.server.CPU.Seconds() * 1e6 }), false}
}

// leastServed and mostServed are columns with the smallest and the greatest number
// of acquisitions of a goroutine.
func leastServed() column {
	return column{"goroutine min", func(r *run) float64 { return float64(slices.Min(r.served())) }, false}
}

func mostServed() column {
	return column{"goroutine max", func(r *run) float64 { return float64(slices.Max(r.served())) }, false}
}

func fairness() column {
	return column{"max/min", func(r *run) float64 {
		// The ratio is infinite if a goroutine got nothing.
		return float64(slices.Max(r.served())) / float64(slices.Min(r.served()))
	}, false}
}

func overlaps() column {
	return column{"overlaps", func(r *run) float64 {
		return max(r.sum(func(p *result) float64 { return float64(p.Overlaps) }), float64(r.chain.overlaps))
	}, false}
}

// gap returns a column with a percentile of the time from the call of Release to the
// grant in another process, in microseconds.
func gap(title string, percent int, spread bool) column {
	return column{title, func(r *run) float64 { return percentile(r.chain.gaps, percent) / 1e3 }, spread}
}

// crossShare returns a column with the share of the hand-overs that go to another process.
func crossShare() column {
	return column{"cross share", func(r *run) float64 { return float64(r.chain.crossed) / float64(r.chain.handOvers) }, false}
}

// longestWaiting returns a column with the longest wait that was unfinished at the
// end of the window.
func longestWaiting() column {
	return column{"longest waiting ms", func(r *run) float64 {
		var longest time.Duration
		for _, p := range r.procs {
			for _, d := range p.Unfinished {
				longest = max(longest, d)
			}
		}
		return longest.Seconds() * 1e3
	}, true}
}

func perOp(of func(*run) float64) func(*run) float64 {
	return func(r *run) float64 { return of(r) / r.ops() }
}

// ops returns the number of acquisitions.
func (r *run) ops() float64 {
	return float64(r.waits.TotalCount())
}

func (r *run) sum(of func(*result) float64) float64 {
	var sum float64
	for _, p := range r.procs {
		sum += of(p)
	}
	return sum
}

func (r *run) clientCPU() time.Duration {
	return time.Duration(r.sum(func(p *result) float64 { return float64(p.CPU) }))
}

// served returns the number of acquisitions of each goroutine.
func (r *run) served() []int {
	var all []int
	for _, p := range r.procs {
		all = append(all, p.Served...)
	}
	return all
}

// servedByProcess returns the number of acquisitions of each process.
func (r *run) servedByProcess() []int {
	var all []int
	for _, p := range r.procs {
		n := 0
		for _, s := range p.Served {
			n += s
		}
		all = append(all, n)
	}
	return all
}

// A target is a bound for a column of snib's row.
type target struct {
	column string
	// The bound is for the ratio to this peer, or to the best one; "": for the figure itself.
	relativeTo string
	op         string // ≥ or ≤
	bound      float64
	stretch    bool // optional
}

// best stands for the best peer in target.relativeTo.
const best = "the best peer"

// snibRow is the row to which the targets apply.
const snibRow = "snib"

// A table contains the runs of a variant.
type table struct {
	scenario *scenario
	variant  *variant
	peers    []peer
	runs     []*run
}

// A spread is the distribution of a figure over all repetitions.
type spread struct{ median, low, high float64 }

// figures returns the figures of one peer, by repetition. Missing figures are NaN.
func (t *table) figures(peer string, of func(*run) float64) []float64 {
	var all []float64
	for _, r := range t.runs {
		if r.peer != peer {
			continue
		}
		for len(all) <= r.rep {
			all = append(all, math.NaN())
		}
		if r.err == nil {
			all[r.rep] = of(r)
		}
	}
	return all
}

func spreadOf(figures []float64) spread {
	figures = slices.DeleteFunc(slices.Clone(figures), math.IsNaN)
	if len(figures) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(figures)
	n := len(figures)
	return spread{(figures[(n-1)/2] + figures[n/2]) / 2, figures[0], figures[n-1]}
}

// best returns the library that is best by the first column, or "" if no library ran.
func (t *table) best() string {
	name, top := "", math.NaN()
	for _, p := range t.peers {
		if got := spreadOf(t.figures(p.name, t.scenario.columns[0].of)).median; p.role == library && t.better(got, top) {
			name, top = p.name, got
		}
	}
	return name
}

// better reports whether the figure a of the first column is better than b. Any
// figure is better than NaN.
func (t *table) better(a, b float64) bool {
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return !math.IsNaN(a)
	case t.scenario.lowerIsBetter:
		return a < b
	}
	return a > b
}

// ratios returns the ratios of a peer to another one within each repetition.
func (t *table) ratios(peer, other string, of func(*run) float64) []float64 {
	a, b := t.figures(peer, of), t.figures(other, of)
	all := make([]float64, min(len(a), len(b)))
	for i := range all {
		all[i] = a[i] / b[i]
	}
	return all
}

// A targetResult is the result for a target.
type targetResult struct {
	Target string `json:"target"`
	Judged string `json:"judged"` // met, missed, or not judged
	Figure string `json:"figure,omitempty"`
}

func (t *table) judgeTargets() []targetResult {
	var all []targetResult
	for _, g := range t.variant.targets {
		i := slices.IndexFunc(t.scenario.columns, func(c column) bool { return c.title == g.column })
		of := t.scenario.columns[i].of
		v := targetResult{Target: g.String(), Judged: "not judged"}
		over := g.relativeTo
		if over == best {
			if over = t.best(); over != "" {
				v.Target += " (" + over + ")"
			}
		}
		figures := t.figures(snibRow, of)
		if g.relativeTo != "" {
			figures = t.ratios(snibRow, over, of)
		}
		s := spreadOf(figures)
		switch {
		case math.IsNaN(s.median):
		case g.op == "≥" && s.median >= g.bound, g.op == "≤" && s.median <= g.bound:
			v.Judged, v.Figure = "met", s.String()
		default:
			v.Judged, v.Figure = "missed", s.String()
		}
		all = append(all, v)
	}
	return all
}

func (g target) String() string {
	text := fmt.Sprintf("%s %s %g", g.column, g.op, g.bound)
	if g.relativeTo != "" {
		text += " × " + g.relativeTo
	}
	if g.stretch {
		text = "stretch: " + text
	}
	return text
}

// ranked returns the peers, with the best one first.
func (t *table) ranked() []peer {
	return slices.SortedStableFunc(slices.Values(t.peers), func(a, b peer) int {
		of := t.scenario.columns[0].of
		x, y := spreadOf(t.figures(a.name, of)).median, spreadOf(t.figures(b.name, of)).median
		switch {
		case t.better(x, y):
			return -1
		case t.better(y, x):
			return 1
		}
		return 0
	})
}

// rows returns the table's cells, with the best peer first. The first row is the header.
func (t *table) rows() [][]string {
	best := t.best()
	head := []string{"peer"}
	for i, c := range t.scenario.columns {
		head = append(head, c.title)
		if i == 0 && t.scenario.ratio {
			head = append(head, "× best peer")
		}
	}
	rows := [][]string{head}
	for _, p := range t.ranked() {
		row := []string{p.name}
		for i, c := range t.scenario.columns {
			s := spreadOf(t.figures(p.name, c.of))
			if c.spread {
				row = append(row, s.String())
			} else {
				row = append(row, formatFigure(s.median))
			}
			if i == 0 && t.scenario.ratio {
				row = append(row, spreadOf(t.ratios(p.name, best, c.of)).String())
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// notes returns the lines below the table.
func (t *table) notes() []string {
	var foreign []float64
	var notes []string
	for _, p := range t.peers {
		var gaveUp, lost errorCount
		for _, r := range t.runs {
			switch {
			case r.peer != p.name:
			case r.err != nil:
				notes = append(notes, fmt.Sprintf("%s failed in repetition %d: %v", p.name, r.rep+1, r.err))
			default:
				gaveUp.add(r.gaveUp())
				lost.add(r.lost())
				foreign = append(foreign, r.foreignCores)
			}
		}
		if gaveUp.N > 0 {
			notes = append(notes, fmt.Sprintf("%s gave up waiting %d times and was asked again: %s", p.name, gaveUp.N, gaveUp.Any))
		}
		if lost.N > 0 {
			notes = append(notes, fmt.Sprintf("%s lost or did not release %d locks: %s", p.name, lost.N, lost.Any))
		}
	}
	servers := "" // the harness knows what Redis uses, but not other servers
	if t.scenario.server != nil || slices.ContainsFunc(t.peers, func(p peer) bool { return p.start != nil }) {
		servers = ", with those of the servers"
	}
	if s := spreadOf(foreign); !math.IsNaN(s.median) {
		notes = append(notes, fmt.Sprintf("Foreign cores during these runs%s: median %s, least %s, most %s.", servers, formatFigure(s.median), formatFigure(s.low), formatFigure(s.high)))
	}
	for _, v := range t.judgeTargets() {
		line := "Target: " + v.Target + ": " + v.Judged
		if v.Figure != "" {
			line += ", " + v.Figure
		}
		notes = append(notes, line)
	}
	return notes
}

func (r *run) gaveUp() (all errorCount) {
	for _, p := range r.procs {
		all.add(p.GaveUp)
	}
	return all
}

func (r *run) lost() (all errorCount) {
	for _, p := range r.procs {
		all.add(p.Lost)
	}
	return all
}

func (t *table) title() string { return t.scenario.name + ", " + t.variant.title() }

// subtitle names the peer to which the ratios refer.
func (t *table) subtitle() string {
	if best := t.best(); t.scenario.ratio && best != "" {
		return " (best peer: " + best + ")"
	}
	return ""
}

// writeText writes the table with aligned columns.
func (t *table) writeText(w io.Writer) {
	rows := t.rows()
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(w, "%s%s\n\n", t.title(), t.subtitle())
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, line.String())
	}
	fmt.Fprintln(w)
	for _, note := range t.notes() {
		fmt.Fprintln(w, note)
	}
	fmt.Fprintln(w)
}

// writeMarkdown writes the table in Markdown.
func (t *table) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "**%s**%s\n\n", t.title(), t.subtitle())
	writeRows(w, t.rows())
	fmt.Fprintln(w)
	for _, note := range t.notes() {
		fmt.Fprintf(w, "- %s\n", note)
	}
	fmt.Fprintln(w)
}

// writeRows writes rows as a table of Markdown. The first row is its header.
func writeRows(w io.Writer, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|---|%s\n", strings.Repeat("---:|", len(row)-1))
		}
	}
}

// String returns the median, and the range unless it is a single value.
func (s spread) String() string {
	if s.low == s.high || math.IsNaN(s.median) {
		return formatFigure(s.median)
	}
	return fmt.Sprintf("%s [%s–%s]", formatFigure(s.median), formatFigure(s.low), formatFigure(s.high))
}

// formatFigure formats a figure with about three digits.
func formatFigure(f float64) string {
	switch a := math.Abs(f); {
	case math.IsNaN(f):
		return "–"
	case math.IsInf(f, 0):
		return "∞"
	case a >= 1e6:
		return fmt.Sprintf("%.2fM", f/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.1fk", f/1e3)
	case a >= 100 || f == 0:
		return fmt.Sprintf("%.0f", f)
	case a >= 10:
		return fmt.Sprintf("%.1f", f)
	case a >= 0.01:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.4f", f)
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
			for _, c := range t.scenario.columns {
				put(c.title, c.of(r))
			}
		}
		runs = append(runs, raw)
	}
	return tableJSON{about, t.scenario.name, t.variant.title(), t.best(), runs, t.judgeTargets()}
}

// title returns the variant's name, and the delay of the network if there is one.
func (v *variant) title() string {
	if v.delay == 0 {
		return v.name
	}
	return fmt.Sprintf("%s, %v each way", v.name, v.delay)
}

// A sink writes tables in one format, and saves them with charts.
type sink struct {
	w       io.Writer
	format  string
	dir     string // to save in; "" if nothing is saved
	about   string // describes the machine and the versions
	command string // that was given
}

func (s *sink) begin(about, command string) {
	s.about, s.command = about, command
	if s.format != "json" {
		fmt.Fprintf(s.w, "%s\n\n", about)
	}
}

func (s *sink) put(t *table) error {
	switch s.format {
	case "json":
		return json.NewEncoder(s.w).Encode(t.jsonValue(s.about)) // one table per line
	case "markdown":
		t.writeMarkdown(s.w)
	default:
		t.writeText(s.w)
	}
	return nil
}

// save saves the tables of a scenario in Markdown, and a chart.
func (s *sink) save(tables []*table) error {
	if s.dir == "" {
		return nil
	}
	var page, chart bytes.Buffer
	name := tables[0].scenario.name
	fmt.Fprintf(&page, "# %s\n\n`%s`\n\n%s\n\n![chart](%s.svg)\n\n", name, s.command, s.about, name)
	for _, t := range tables {
		t.writeMarkdown(&page)
	}
	if err := writeChart(&chart, tables, append([]string{s.command}, wrap(s.about)...)); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(s.dir, name+".md"), page.Bytes(), 0o644),
		os.WriteFile(filepath.Join(s.dir, name+".svg"), chart.Bytes(), 0o644))
}

// wrap breaks a list of parts into lines that are as wide as a chart.
func wrap(list string) (lines []string) {
	const most = 130
	for part := range strings.SplitSeq(list, ", ") {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+len(part) < most {
			lines[last] += ", " + part
		} else {
			lines = append(lines, part)
		}
	}
	return lines
}
