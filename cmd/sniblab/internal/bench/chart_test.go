package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// textsOf returns the texts of a picture, and how many bars of each color it has.
func textsOf(t *testing.T, svg []byte) (texts []string, bars map[string]int) {
	t.Helper()
	bars = map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts, bars
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, svg)
		}
		switch x := token.(type) {
		case xml.StartElement:
			for _, a := range x.Attr {
				if a.Name.Local == "style" && strings.HasPrefix(a.Value, "fill:") {
					bars[a.Value]++
				}
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(x)); text != "" {
				texts = append(texts, text)
			}
		}
	}
}

// TestSave saves two tables of a scenario: the page and the picture have the figures of all peers,
// also of one whose runs have failed, with the command and the machine.
func TestSave(t *testing.T) {
	one := newTable(false, map[string][]float64{"snib": {16_400, 20_000}, "a": {8200, 5000}, "b": {math.NaN()}, "floor": {30_000}})
	two := newTable(true, map[string][]float64{"snib": {0}, "a": {7}})
	two.variant.delay = 500 * time.Microsecond
	dir := t.TempDir()
	s := sink{w: io.Discard, dir: dir}
	s.begin("2 cores, "+strings.Repeat("a library v1.2.3, ", 20)+"the last one.", "go run ./cmd/sniblab/internal/bench -save x")
	if err := errors.Join(s.put([]*table{one, two}), s.end()); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	page := string(read("S0.md"))
	for _, want := range []string{"go run ./cmd/sniblab/internal/bench -save x", "the last one.", "![chart](S0.svg)", "| snib | 18.2k [16.4k–20.0k] |", "**S0, a test, network delay 500µs each way**", "- snib: snib's description"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	texts, bars := textsOf(t, read("S0.svg"))
	all := strings.Join(texts, "\n")
	for _, want := range []string{
		"S0, a test\n", "S0, a test, network delay 500µs each way", "x (less is better), with the ratio to a", "18.2k [16.4k–20.0k], × 3.00 [2.00–4.00]",
		"6600 [5000–8200]", "30.0k", "no figure", "floor",
		"go run ./cmd/sniblab/internal/bench -save x", "2 cores, a library", "the last one.",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the picture has no %q:\n%s", want, all)
		}
	}
	if ours, others := bars["fill:#1B6CA8"], bars["fill:#B4BEC8"]; ours != 2 || others != 3 {
		t.Errorf("the picture has %d bars of ours and %d of others, want 2 and 3: %v", ours, others, bars)
	}
	for _, want := range []string{"# summary", "go run ./cmd/sniblab/internal/bench -save x", "Better in 2 of 2 comparisons", "| S0 | a test | x | snib | a | better | 18.2k [16.4k–20.0k] |"} {
		if page := string(read("summary.md")); !strings.Contains(page, want) {
			t.Errorf("the summary has no %q:\n%s", want, page)
		}
	}
	texts, _ = textsOf(t, read("summary.svg"))
	for _, want := range []string{"S0, a test: snib", "3.00 [2.00–4.00] × a: better"} {
		if !slices.Contains(texts, want) {
			t.Errorf("the picture of the summary has no %q: %q", want, texts)
		}
	}
}
