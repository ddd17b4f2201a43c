package main

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLink(t *testing.T) {
	tests := []struct {
		name  string
		procs [][]hold
		want  chain
	}{
		{"Nothing", nil, chain{}},
		{"Alone", [][]hold{{{Got: 1, Left: 2, Released: 3}, {Got: 4, Left: 5, Released: 6}}}, chain{handOvers: 1, idle: 2}},
		{
			"InTurn",
			[][]hold{{{Got: 0, Left: 10, Released: 15}, {Got: 40, Left: 50, Released: 51}}, {{Got: 12, Left: 30, Released: 32}}},
			chain{handOvers: 2, crossed: 2, gaps: []int64{2, 10}, fromReturn: []int64{-3, 8}, idle: 12},
		},
		{
			"Overlap",
			[][]hold{{{Got: 0, Left: 10, Released: 11}}, {{Got: 9, Left: 20, Released: 21}}},
			chain{handOvers: 1, crossed: 1, overlaps: 1, gaps: []int64{-1}, fromReturn: []int64{-2}, idle: -1},
		},
		{
			"OverlapOfTheNextButOne", // the long hold of the first process covers both others
			[][]hold{{{Got: 0, Left: 100, Released: 101}}, {{Got: 10, Left: 20, Released: 21}, {Got: 30, Left: 40, Released: 41}}},
			chain{
				handOvers: 2, crossed: 1, overlaps: 2, gaps: []int64{-90}, fromReturn: []int64{-91}, idle: -80,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := linkHolds(tt.procs)
			if got.handOvers != tt.want.handOvers || got.crossed != tt.want.crossed || got.overlaps != tt.want.overlaps ||
				got.idle != tt.want.idle || !slices.Equal(got.gaps, tt.want.gaps) || !slices.Equal(got.fromReturn, tt.want.fromReturn) {
				t.Errorf("link(%v)\n got %+v\nwant %+v", tt.procs, got, tt.want)
			}
		})
	}
}

// newTable returns a table of runs with one figure each.
func newTable(least bool, all map[string][]float64, targets ...target) *table {
	t := &table{
		scenario: &scenario{name: "S0", lowerIsBetter: least, ratio: true, columns: []column{
			{"x", func(r *run) float64 { return r.foreignCores }, true},
		}},
		variant: &variant{name: "a test", targets: targets},
	}
	for _, p := range []peer{{name: snibRow, role: ours}, {name: "a"}, {name: "b"}, {name: "floor", role: floor}} {
		if all[p.name] == nil {
			continue
		}
		t.peers = append(t.peers, p)
		for rep, f := range all[p.name] {
			r := &run{peer: p.name, rep: rep, window: time.Second, foreignCores: f}
			if math.IsNaN(f) {
				r.err = errors.New("it broke")
			}
			t.runs = append(t.runs, r)
		}
	}
	return t
}

func TestJudge(t *testing.T) {
	atLeast := func(bound float64, over string) target {
		return target{column: "x", relativeTo: over, op: "≥", bound: bound}
	}
	atMost := func(bound float64, over string) target {
		return target{column: "x", relativeTo: over, op: "≤", bound: bound}
	}
	nan := math.NaN()
	tests := []struct {
		name   string
		least  bool
		rows   map[string][]float64
		target target
		want   string
	}{
		// The best peer is b. The ratios within the repetitions are 1, 4 and 1,
		// although both medians are 20.
		{"Ratio", false, map[string][]float64{"snib": {10, 80, 20}, "a": {1, 2, 3}, "b": {10, 20, 20}, "floor": {99, 99, 99}},
			atLeast(1, best), "x ≥ 1 × the best peer (b): met, 1.00 [1.00–4.00]"},
		{"Missed", false, map[string][]float64{"snib": {10}, "a": {20}}, atLeast(0.95, best), "x ≥ 0.95 × the best peer (a): missed, 0.50"},
		{"LeastIsBest", true, map[string][]float64{"snib": {1}, "a": {2}, "b": {4}}, atMost(0.5, best), "x ≤ 0.5 × the best peer (a): met, 0.50"},
		{"OverOne", false, map[string][]float64{"snib": {1}, "floor": {2}}, atMost(0.5, "floor"), "x ≤ 0.5 × floor: met, 0.50"},
		{"Plain", false, map[string][]float64{"snib": {1, 3}}, atMost(2, ""), "x ≤ 2: met, 2.00 [1.00–3.00]"},
		{"AtMostZero", false, map[string][]float64{"snib": {0}}, atMost(0, ""), "x ≤ 0: met, 0"},
		{"ARunFailed", false, map[string][]float64{"snib": {nan, 4, 4}, "a": {2, 2, nan}}, atLeast(2, best), "x ≥ 2 × the best peer (a): met, 2.00"},
		{"NoSnib", false, map[string][]float64{"a": {2}}, atLeast(2, best), "x ≥ 2 × the best peer (a): not judged"},
		{"NoPeer", false, map[string][]float64{"snib": {2}}, atLeast(2, best), "x ≥ 2 × the best peer: not judged"},
		{"NoSuchPeer", false, map[string][]float64{"snib": {2}}, atLeast(2, "floor"), "x ≥ 2 × floor: not judged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := newTable(tt.least, tt.rows, tt.target).judgeTargets()[0]
			got := v.Target + ": " + v.Judged
			if v.Figure != "" {
				got += ", " + v.Figure
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTitles checks that each target names a column of its scenario, and that titles are
// unique, because they are keys in JSON.
func TestTitles(t *testing.T) {
	for _, s := range scenarios() {
		var titles []string
		for _, c := range s.columns {
			if slices.Contains(titles, c.title) {
				t.Errorf("%s has two columns %q", s.name, c.title)
			}
			titles = append(titles, c.title)
		}
		for _, v := range s.variants {
			for _, g := range v.targets {
				if !slices.Contains(titles, g.column) {
					t.Errorf("%s, %s: a target for %q, which is no column", s.name, v.name, g.column)
				}
			}
		}
	}
}

func TestText(t *testing.T) {
	tab := newTable(false, map[string][]float64{"snib": {16_400, 20_000}, "a": {8200, 5000}, "floor": {0, 0}}, target{column: "x", op: "≥", bound: 2})
	var text, markdown bytes.Buffer
	tab.writeText(&text)
	tab.writeMarkdown(&markdown)
	want := `S0, a test (best peer: a)

peer                     x       × best peer
snib   18.2k [16.4k–20.0k]  3.00 [2.00–4.00]
a         6600 [5000–8200]              1.00
floor                    0                 0

Foreign cores during these runs: median 6600, least 0, most 20.0k.
Target: x ≥ 2: met, 18.2k [16.4k–20.0k]

`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	want = `**S0, a test** (best peer: a)

| peer | x | × best peer |
|---|---:|---:|
| snib | 18.2k [16.4k–20.0k] | 3.00 [2.00–4.00] |
`
	if got := markdown.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", got, want)
	}
}

func TestShort(t *testing.T) {
	tests := map[float64]string{
		0: "0", 0.00005: "0.0001", 0.012: "0.01", 3.14159: "3.14", 27.04: "27.0", 453.2: "453", 8176: "8176", 16_400: "16.4k", 5_120_000: "5.12M",
		-18.4: "-18.4", math.NaN(): "–", math.Inf(1): "∞",
	}
	for f, want := range tests {
		if got := formatFigure(f); got != want {
			t.Errorf("short(%v) = %q, want %q", f, got, want)
		}
	}
}
