//go:build linux

package nemesis

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/nemesis.md anew")

const (
	page  = "../../docs/nemesis.md"
	begin = "<!-- begin: go test ./internal/nemesis -run TestPage -args -update -->\n"
	end   = "<!-- end -->\n"
)

// TestPage compares the tables of the page with the rows that runs are judged by, and with the
// assumptions that are broken.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	rest := string(text)
	for _, made := range []string{tables(), assumptionTable()} {
		head, behind, ok1 := strings.Cut(rest, begin)
		_, tail, ok2 := strings.Cut(behind, end)
		if !ok1 || !ok2 {
			t.Fatalf("%s has no place for the tables", page)
		}
		want.WriteString(head + begin + made + end)
		rest = tail
	}
	want.WriteString(rest)
	if want.String() == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what runs are judged by; go test ./internal/nemesis -run TestPage -args -update writes it", page)
	}
	if err := os.WriteFile(page, []byte(want.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tables are those of all set-ups.
func tables() string {
	var out strings.Builder
	for _, s := range setups {
		fmt.Fprintf(&out, "\n### %s\n\n%s.\n\n", s.name, strings.ToUpper(s.about[:1])+s.about[1:])
		fmt.Fprintln(&out, "| fault | what the holder is told | who may get the lock | tokens | what may go wrong all the same |")
		fmt.Fprintln(&out, "| --- | --- | --- | --- | --- |")
		for _, r := range s.rows {
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", r.fault, r.told, r.next, r.tokens, r.exception())
		}
	}
	out.WriteString("\n")
	return out.String()
}

// exception is what a row allows, in words.
func (r row) exception() string {
	if len(r.allows) == 0 {
		return "nothing"
	}
	var facts []string
	for _, f := range r.allows {
		facts = append(facts, string(f))
	}
	text := strings.Join(facts, ", ")
	if r.on != nil {
		text += " of " + strings.Join(r.on, ", ")
	}
	if r.while > 0 && r.while < unbounded {
		text += fmt.Sprintf(", until %v after the fault", r.while)
	}
	return text + ": " + r.why
}

// Each set-up has a row for each fault once.
func TestRows(t *testing.T) {
	for _, s := range setups {
		seen := map[string]bool{}
		for _, r := range s.rows {
			if seen[r.fault] {
				t.Errorf("%s has two rows for %q", s.name, r.fault)
			}
			seen[r.fault] = true
			if r.told == "" || r.next == "" || r.tokens == "" || len(r.allows) > 0 && (r.why == "" || r.while == 0) {
				t.Errorf("%s, %q: the row is not complete", s.name, r.fault)
			}
		}
	}
}
