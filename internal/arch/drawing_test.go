package arch

import (
	"fmt"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDrawing compares the drawing of imports in docs/design.md with the imports. UPDATE=1 draws it
// anew ("make drawing").
func TestDrawing(t *testing.T) {
	const page, begin, end = "../../docs/design.md", "```mermaid\n", "```\n"
	r, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	parts, _, err := sizes(r.fsys)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no drawing", page)
	}
	want := before + begin + drawing(r, parts) + end + after
	if os.Getenv("UPDATE") != "" {
		err = os.WriteFile(page, []byte(want), 0o644)
	} else if want != string(text) {
		err = fmt.Errorf("%s does not show the imports; run make drawing", page)
	}
	if err != nil {
		t.Error(err)
	}
}

// drawing returns which parts import which, without what follows from other arrows.
func drawing(r *repo, parts []*part) string {
	arrows := map[string]map[string]bool{} // from a part to those that it imports
	add := func(from, to string) {
		if arrows[from] == nil {
			arrows[from] = map[string]bool{}
		}
		arrows[from][to] = true
	}
	for _, p := range r.pkgs {
		from := partOf(parts, p.dir).name
		for _, f := range p.files {
			r.imports(f, func(_ token.Pos, dir string, own bool) {
				if to := partOf(parts, dir); own && !f.test && to.name != from {
					add(from, to.name)
				}
			})
		}
	}
	var b strings.Builder
	b.WriteString("graph TD\n")
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		for _, to := range slices.Sorted(maps.Keys(arrows[from])) {
			if !leads(arrows, from, to, len(arrows)) {
				fmt.Fprintf(&b, "  %s[%s] --> %s[%s]\n", strings.ReplaceAll(from, " ", "_"), from, strings.ReplaceAll(to, " ", "_"), to)
			}
		}
	}
	return b.String()
}

// leads reports whether a way of at least two arrows, and at most most, leads from one part to
// another.
func leads(arrows map[string]map[string]bool, from, to string, most int) bool {
	for next := range arrows[from] {
		if arrows[next][to] || most > 2 && leads(arrows, next, to, most-1) {
			return true
		}
	}
	return false
}
