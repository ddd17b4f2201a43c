package main

import (
	"fmt"
	"io"
	"math"
)

// A summary says at a glance where snib is better than what it is compared with, and which aims
// it meets.
type summary struct {
	ratios  []ratio
	aims    [][]string // rows of a table, without the header
	met     int
	judged  int
	skipped []string // scenarios, each with the reason
}

// A ratio compares one of our rows with another one.
type ratio struct {
	table        *table
	ours, base   string
	mine, theirs spread
	quotient     spread // of mine and theirs, within each repetition
}

func newSummary(tables []*table, skipped []string) *summary {
	s := &summary{skipped: skipped}
	for _, t := range tables {
		of := t.columns()[0].of
		for _, p := range t.peers {
			if base := t.base(&p); p.role == ours && base != "" {
				s.ratios = append(s.ratios, ratio{
					table: t, ours: p.name, base: base, mine: spreadOf(t.figures(p.name, of)), theirs: spreadOf(t.figures(base, of)),
					quotient: spreadOf(t.ratios(p.name, base, of)),
				})
			}
		}
		for _, v := range t.judge() {
			s.aims = append(s.aims, []string{t.scenario.name, t.variant.title(), v.Aim, v.Judged, v.Figure})
			if v.Judged == "met" {
				s.met++
			}
			if v.Judged != "not judged" {
				s.judged++
			}
		}
	}
	return s
}

// result says who is better: the range decides whether the difference is more than noise.
func (r *ratio) result() string {
	low, high := r.better()
	switch {
	case math.IsNaN(low):
		return "failed"
	case low > 1:
		return "better"
	case high < 1:
		return "worse"
	}
	return "equal within the range"
}

// better returns the least and the most of how many times better our row is.
func (r *ratio) better() (low, high float64) {
	if r.table.columns()[0].lowerIsBetter {
		return 1 / r.quotient.high, 1 / r.quotient.low
	}
	return r.quotient.low, r.quotient.high
}

func (s *summary) write(w io.Writer, format string) {
	heading := "%s\n\n"
	if format == "markdown" {
		heading = "## %s\n\n"
	}
	rows := [][]string{{"scenario", "variant", "what", "lock", "beside", "result", "figure", "the other's", "ratio"}}
	counts := map[string]int{}
	for _, r := range s.ratios {
		t, result := r.table, r.result()
		what := t.columns()[0].title
		if t.columns()[0].lowerIsBetter {
			what += ", less is better"
		}
		rows = append(rows, []string{t.scenario.name, t.variant.title(), what, r.ours, r.base, result, r.mine.String(), r.theirs.String(), r.quotient.String()})
		counts[result]++
	}
	if len(s.ratios) > 0 {
		fmt.Fprintf(w, heading, fmt.Sprintf("Better in %d of %d comparisons, worse in %d", counts["better"], len(s.ratios), counts["worse"]))
		writeRows(w, rows, 6, format)
	}
	if len(s.aims) > 0 {
		fmt.Fprintf(w, heading, fmt.Sprintf("%d of %d aims are met", s.met, s.judged))
		writeRows(w, append([][]string{{"scenario", "variant", "aim", "result", "figure"}}, s.aims...), 4, format)
	}
	for _, reason := range s.skipped {
		fmt.Fprintf(w, "- Skipped: %s\n", reason)
	}
}
