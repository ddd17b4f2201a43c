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
	page      = "../../docs/nemesis.md"
	beginMark = "<!-- begin: go test ./internal/nemesis -run TestPage -args -update -->\n"
	endMark   = "<!-- end -->\n"
)

// TestPage compares the tables of the page with the rows by which runs are judged,
// and with the table of assumptions.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	rest := string(text)
	for _, made := range []string{setupTables(), assumptionTable()} {
		head, behind, ok1 := strings.Cut(rest, beginMark)
		_, tail, ok2 := strings.Cut(behind, endMark)
		if !ok1 || !ok2 {
			t.Fatalf("%s has no place for the tables", page)
		}
		want.WriteString(head + beginMark + made + endMark)
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

// setupTables returns the tables of all set-ups.
func setupTables() string {
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

// exception describes what a row allows.
func (r row) exception() string {
	if len(r.allows) == 0 {
		return "nothing"
	}
	var facts []string
	for _, f := range r.allows {
		facts = append(facts, string(f))
	}
	text := strings.Join(facts, ", ")
	if r.names != nil {
		text += " of " + strings.Join(r.names, ", ")
	}
	if r.allowedFor > 0 && r.allowedFor < unbounded {
		text += fmt.Sprintf(", until %v after the fault, not counting other faults", r.allowedFor)
	}
	return text + ": " + r.why
}

// TestRows checks that no set-up has two rows for one fault, and that the rows are complete.
func TestRows(t *testing.T) {
	for _, s := range setups {
		seen := map[string]bool{}
		for _, r := range s.rows {
			if seen[r.fault] {
				t.Errorf("%s has two rows for %q", s.name, r.fault)
			}
			seen[r.fault] = true
			if r.told == "" || r.next == "" || r.tokens == "" || len(r.allows) > 0 && (r.why == "" || r.allowedFor == 0) {
				t.Errorf("%s, %q: the row is not complete", s.name, r.fault)
			}
		}
	}
}
