package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A table contains the runs of a variant.
type table struct {
	scenario *scenario
	variant  *variant
	peers    []peer
	runs     []*run
}

// columns returns the columns of the table. The peers are ranked by the first one.
func (t *table) columns() []column {
	if t.variant.columns != nil {
		return t.variant.columns
	}
	return t.scenario.columns
}

// column returns the column with a title.
func (t *table) column(title string) column {
	all := t.columns()
	return all[slices.IndexFunc(all, func(c column) bool { return c.title == title })]
}

// A spread is the distribution of a figure over all repetitions.
type spread struct{ median, low, high float64 }

func spreadOf(figures []float64) spread {
	figures = slices.DeleteFunc(slices.Clone(figures), math.IsNaN)
	if len(figures) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(figures)
	n := len(figures)
	return spread{(figures[(n-1)/2] + figures[n/2]) / 2, figures[0], figures[n-1]}
}

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

// ratios returns the ratios of a peer to another one within each repetition.
func (t *table) ratios(peer, other string, of func(*run) float64) []float64 {
	a, b := t.figures(peer, of), t.figures(other, of)
	all := make([]float64, min(len(a), len(b)))
	for i := range all {
		all[i] = a[i] / b[i]
	}
	return all
}

// median returns a peer's figure of the first column.
func (t *table) median(peer string) float64 {
	return spreadOf(t.figures(peer, t.columns()[0].of)).median
}

// better reports whether the figure a of the first column is better than b. Any
// figure is better than NaN.
func (t *table) better(a, b float64) bool {
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return !math.IsNaN(a)
	case t.columns()[0].lowerIsBetter:
		return a < b
	}
	return a > b
}

// best returns the library that is best by the first column, or "" if no library ran.
func (t *table) best() string {
	name, top := "", math.NaN()
	for _, p := range t.peers {
		if got := t.median(p.name); p.role == library && t.better(got, top) {
			name, top = p.name, got
		}
	}
	return name
}

// base returns the name of the row to which a peer is compared, or "" if there is none.
func (t *table) base(p *peer) string {
	if p.beside == "" {
		return t.best()
	}
	if slices.ContainsFunc(t.peers, func(q peer) bool { return q.name == p.beside }) {
		return p.beside
	}
	return ""
}

// ranked returns the peers, with the best one first.
func (t *table) ranked() []peer {
	return slices.SortedStableFunc(slices.Values(t.peers), func(a, b peer) int {
		x, y := t.median(a.name), t.median(b.name)
		switch {
		case t.better(x, y):
			return -1
		case t.better(y, x):
			return 1
		}
		return 0
	})
}

// shown returns the columns in which a row has a figure.
func (t *table) shown() []column {
	return slices.DeleteFunc(slices.Clone(t.columns()), func(c column) bool {
		return c.title != t.columns()[0].title && !slices.ContainsFunc(t.peers, func(p peer) bool {
			return !math.IsNaN(spreadOf(t.figures(p.name, c.of)).median)
		})
	})
}

// mainBase returns the row to which all ratios of the table are: that of our first row, or else
// the best library.
func (t *table) mainBase() string {
	for _, p := range t.peers {
		if p.role == ours {
			return t.base(&p)
		}
	}
	return t.best()
}

// rows returns the table's cells, with the best peer first. The first row is the header.
func (t *table) rows() [][]string {
	base, columns := t.mainBase(), t.shown()
	head := []string{"lock"}
	for i, c := range columns {
		head = append(head, c.title)
		if i == 0 && base != "" {
			head = append(head, "× "+base)
		}
	}
	rows := [][]string{head}
	for _, p := range t.ranked() {
		row := []string{p.name}
		for i, c := range columns {
			s := spreadOf(t.figures(p.name, c.of))
			if c.spread {
				row = append(row, s.String())
			} else {
				row = append(row, formatFigure(s.median))
			}
			if i == 0 && base != "" {
				row = append(row, spreadOf(t.ratios(p.name, base, c.of)).String())
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
	if s := spreadOf(foreign); !math.IsNaN(s.median) {
		notes = append(notes, fmt.Sprintf("Cores that other programs used meanwhile: median %s, least %s, most %s.", formatFigure(s.median), formatFigure(s.low), formatFigure(s.high)))
	}
	for _, v := range t.judge() {
		notes = append(notes, "Aim: "+v.String())
	}
	return notes
}

// title says what the table shows.
func (t *table) title() string {
	return fmt.Sprintf("%s, %s", t.scenario.name, t.variant.title())
}

// title returns the variant's name, and the delay of the network if there is one.
func (v *variant) title() string {
	if v.delay == 0 {
		return v.name
	}
	return fmt.Sprintf("%s, network delay %v each way", v.name, v.delay)
}

// write writes the table and its notes as text with aligned columns, or in Markdown.
func (t *table) write(w io.Writer, format string) {
	title, prefix := t.title(), ""
	if format == "markdown" {
		title, prefix = "**"+title+"**", "- "
	}
	fmt.Fprintf(w, "%s\n\n", title)
	writeRows(w, t.rows(), 1, format)
	for _, note := range t.notes() {
		fmt.Fprintf(w, "%s%s\n", prefix, note)
	}
	fmt.Fprintln(w)
}

// writeRows writes rows, of which the first is the header, and an empty line. The first columns,
// as many as texts says, are texts, and the others figures.
func writeRows(w io.Writer, rows [][]string, texts int, format string) {
	if format == "markdown" {
		for i, row := range rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(w, "|%s%s\n", strings.Repeat("---|", texts), strings.Repeat("---:|", len(row)-texts))
			}
		}
		fmt.Fprintln(w)
		return
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < texts {
				cell += pad
			} else {
				cell = pad + cell
			}
			line.WriteString(cell + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	fmt.Fprintln(w)
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

// An aim is a bound for a column of one of our rows.
type aim struct {
	row    string // snibRow if it is empty
	column string
	// The bound is for the ratio to this peer, or to the best one; "": for the figure itself.
	relativeTo string
	op         string // ≥ or ≤
	bound      float64
	wished     bool // it is no failure to miss it
}

// best stands for the best library in aim.relativeTo.
const best = "the best peer"

// snibRow is the name of snib with its default options.
const snibRow = "snib"

func (a aim) String() string {
	text := fmt.Sprintf("%s %s %g", a.column, a.op, a.bound)
	if a.relativeTo != "" {
		text += " × " + a.relativeTo
	}
	if a.row != "" {
		text = a.row + ": " + text
	}
	if a.wished {
		text += " (wished)"
	}
	return text
}

// A verdict is the result for an aim.
type verdict struct {
	Aim    string `json:"aim"`
	Judged string `json:"judged"` // met, missed, or not judged
	Figure string `json:"figure,omitempty"`
}

func (v verdict) String() string {
	text := v.Aim + ": " + v.Judged
	if v.Figure != "" {
		text += ", " + v.Figure
	}
	return text
}

// judge returns the results for all aims of the table.
func (t *table) judge() (all []verdict) {
	for _, a := range t.variant.aims {
		v := verdict{Aim: a.String(), Judged: "not judged"}
		over := a.relativeTo
		if over == best {
			if over = t.best(); over != "" {
				v.Aim += " (" + over + ")"
			}
		}
		row, of := cmp.Or(a.row, snibRow), t.column(a.column).of
		figures := t.figures(row, of)
		if a.relativeTo != "" {
			figures = t.ratios(row, over, of)
		}
		s := spreadOf(figures)
		switch {
		case math.IsNaN(s.median):
		case a.op == "≥" && s.median >= a.bound, a.op == "≤" && s.median <= a.bound:
			v.Judged, v.Figure = "met", s.String()
		default:
			v.Judged, v.Figure = "missed", s.String()
		}
		all = append(all, v)
	}
	return all
}
