package main

import (
	"bytes"
	"errors"
	"fmt"
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
func newTable(least bool, all map[string][]float64, aims ...aim) *table {
	t := &table{
		scenario: &scenario{name: "S0", about: "A test.", columns: []column{
			{title: "x", of: func(r *run) float64 { return r.foreignCores }, spread: true, lowerIsBetter: least},
			{title: "nothing", of: func(*run) float64 { return math.NaN() }}, // not shown
		}},
		variant: &variant{name: "a test", aims: aims},
	}
	for _, p := range []peer{{name: snibRow, role: ours, about: "snib's description"}, {name: "a"}, {name: "b"}, {name: "floor", role: floor}} {
		if all[p.name] == nil {
			continue
		}
		t.peers, t.scenario.peers = append(t.peers, p), append(t.scenario.peers, p)
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
	atLeast := func(bound float64, over string) aim {
		return aim{column: "x", relativeTo: over, op: "≥", bound: bound}
	}
	atMost := func(bound float64, over string) aim {
		return aim{column: "x", relativeTo: over, op: "≤", bound: bound}
	}
	nan := math.NaN()
	tests := []struct {
		name  string
		least bool
		rows  map[string][]float64
		aim   aim
		want  string
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
			v := newTable(tt.least, tt.rows, tt.aim).judge()[0]
			got := v.Aim + ": " + v.Judged
			if v.Figure != "" {
				got += ", " + v.Figure
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTitles checks that each aim names a column and rows of its table, that titles are unique,
// because they are keys in JSON, and so are names.
func TestTitles(t *testing.T) {
	var names []string
	for _, s := range scenarios() {
		for _, name := range []string{s.name, s.id} {
			if name != "" && slices.Contains(names, name) {
				t.Errorf("two scenarios %q", name)
			}
			names = append(names, name)
		}
		for _, v := range s.variants {
			tab := &table{scenario: &s, variant: &v, peers: s.peersOf(&v)}
			titles, peers := []string{}, []string{"", best}
			for _, p := range tab.peers {
				if slices.Contains(peers, p.name) || p.about == "" {
					t.Errorf("%s: two peers %q, or one without a description", tab.title(), p.name)
				}
				peers = append(peers, p.name)
			}
			for _, c := range tab.columns() {
				if slices.Contains(titles, c.title) {
					t.Errorf("%s: two columns %q", tab.title(), c.title)
				}
				titles = append(titles, c.title)
			}
			for _, a := range v.aims {
				if !slices.Contains(titles, a.column) || !slices.Contains(peers, a.row) || !slices.Contains(peers, a.relativeTo) {
					t.Errorf("%s: an aim for a column or rows that it does not have: %v", tab.title(), a)
				}
			}
			for _, p := range tab.peers {
				if !slices.Contains(peers, p.beside) {
					t.Errorf("%s: %s is compared with %q, which is no row", tab.title(), p.name, p.beside)
				}
			}
		}
	}
}

func TestText(t *testing.T) {
	tab := newTable(false, map[string][]float64{"snib": {16_400, 20_000}, "a": {8200, 5000}, "floor": {0, 0}}, aim{column: "x", op: "≥", bound: 2})
	var text, markdown bytes.Buffer
	tab.write(&text, "text")
	tab.write(&markdown, "markdown")
	want := `S0, a test

lock                     x               × a
snib   18.2k [16.4k–20.0k]  3.00 [2.00–4.00]
a         6600 [5000–8200]              1.00
floor                    0                 0

Cores that other programs used meanwhile: median 6600, least 0, most 20.0k.
Aim: x ≥ 2: met, 18.2k [16.4k–20.0k]

`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	want = `**S0, a test**

| lock | x | × a |
|---|---:|---:|
| snib | 18.2k [16.4k–20.0k] | 3.00 [2.00–4.00] |
`
	if got := markdown.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", got, want)
	}
}

// TestSummary checks who is better: the range of the ratios decides, and a lower figure may be the
// better one.
func TestSummary(t *testing.T) {
	tests := []struct {
		name string
		tab  *table
		want string
	}{
		{"Better", newTable(false, map[string][]float64{"snib": {20, 30}, "a": {10, 20}}), "25.0 [20.0–30.0] × a 1.75 [1.50–2.00] better"},
		{"Worse", newTable(false, map[string][]float64{"snib": {5, 30}, "a": {10, 40}}), " × a 0.62 [0.50–0.75] worse"},
		{"Equal", newTable(false, map[string][]float64{"snib": {5, 50}, "a": {10, 40}}), " × a 0.88 [0.50–1.25] equal within the range"},
		{"LessIsBetter", newTable(true, map[string][]float64{"snib": {5, 30}, "a": {10, 40}}), " × a 0.62 [0.50–0.75] better"},
		{"Failed", newTable(false, map[string][]float64{"snib": {math.NaN()}, "a": {10}}), " × a – failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSummary([]*table{tt.tab}, nil)
			if len(s.ratios) != 1 {
				t.Fatalf("%d ratios, want 1", len(s.ratios))
			}
			r := s.ratios[0]
			if got := fmt.Sprintf("%v × %s %v %s", r.mine, r.base, r.quotient, r.result()); !strings.HasSuffix(got, tt.want) && got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	both := newSummary([]*table{
		newTable(false, map[string][]float64{"snib": {20}, "a": {10}}, aim{column: "x", op: "≥", bound: 2}, aim{column: "x", op: "≥", bound: 30}, aim{column: "x", relativeTo: "none", op: "≥", bound: 1}),
	}, []string{"etcd: it is not installed"})
	var out bytes.Buffer
	both.write(&out, "text")
	for _, want := range []string{"Better in 1 of 1 comparisons, worse in 0", "1 of 2 aims are met", "not judged", "Skipped: etcd: it is not installed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary has no %q:\n%s", want, out.String())
		}
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
