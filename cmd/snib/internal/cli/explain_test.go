package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// docs is the folder of the pages that quote the command's output.
var docs = filepath.Join("..", "..", "..", "..", "docs")

// TestChoosing compares the page with what the drivers say.
func TestChoosing(t *testing.T) {
	checkPage(t, "choosing.md", "<!-- begin: snib explain -o markdown -->\n\n", markdown(backend.Promises()))
}

// checkPage compares the part of a page after begin with want, which is made of the code.
// UPDATE=1 rewrites it.
func checkPage(t *testing.T, page, begin, want string) {
	t.Helper()
	const end = "\n<!-- end -->\n"
	file := filepath.Join(docs, page)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no %q or %q", file, begin, end)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old == want {
		return
	}
	is, should := strings.Split(old, "\n"), strings.Split(want, "\n")
	for i, line := range should {
		if i >= len(is) || is[i] != line {
			t.Fatalf("%s is not what the code says; UPDATE=1 go test writes it. The first line that differs is to be\n%s", file, line)
		}
	}
	t.Fatalf("%s has lines at its end that the code doesn't say", file)
}

// TestPromises checks that a driver promises the same with and without a store.
func TestPromises(t *testing.T) {
	seen := make(map[string]bool)
	for _, i := range backend.Promises() {
		if i.Backend == "" || seen[i.Backend] || len(i.Assumptions) == 0 {
			t.Errorf("promises of %q: %+v", i.Backend, i)
		}
		seen[i.Backend] = true
	}
	s, err := backend.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "locks.db"), backend.Take)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, i := range backend.Promises() {
		if i.Backend == "sqlite" && explainOne(i) != explainOne(s.Info()) {
			t.Errorf("without a file SQLite promises\n%s\nwith one\n%s", explainOne(i), explainOne(s.Info()))
		}
	}
}

// TestFaults checks that each backend says what becomes of a lock under each fault: a gap there
// would look like a promise.
func TestFaults(t *testing.T) {
	for _, i := range backend.Promises() {
		checkClauses(t, i.Backend, backend.FaultsOf(i.Backend))
	}
}

// TestProfiles checks that each backend has a profile without gaps.
func TestProfiles(t *testing.T) {
	promises, profiles := backend.Promises(), backend.Profiles()
	if len(profiles) != len(promises) {
		t.Fatalf("%d profiles of %d backends", len(profiles), len(promises))
	}
	for i, p := range profiles {
		if p.Backend != promises[i].Backend {
			t.Errorf("profile %d is of %q, want %q", i, p.Backend, promises[i].Backend)
		}
		checkClauses(t, p.Backend, p)
	}
}

// checkClauses checks that the fields of a struct, which are strings, fit in the cells of a table.
func checkClauses(t *testing.T, backend string, of any) {
	t.Helper()
	const maxLength = 200
	f := reflect.ValueOf(of)
	for j := range f.NumField() {
		name, text := f.Type().Field(j).Name, f.Field(j).String()
		if text == "" || len(text) > maxLength || strings.Contains(text, "\n") || strings.HasSuffix(text, ".") {
			t.Errorf("%s: %s = %q; want a clause on one line, of at most %d bytes, without a full stop", backend, name, text, maxLength)
		}
	}
}

// TestSpeeds checks that each quoted figure was measured.
func TestSpeeds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range speeds() {
		if !strings.Contains(string(text), s.Figure) {
			t.Errorf("%s: %s (%s) does not stand in docs/performance.md", s.Backend, s.Figure, s.What)
		}
	}
}

// TestExplainFits checks that all output fits in 80 columns.
func TestExplainFits(t *testing.T) {
	text := explainAll(backend.Promises())
	for _, i := range backend.Promises() {
		text += explainOne(i)
	}
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestTTLs(t *testing.T) {
	for _, tt := range []struct {
		info driver.Info
		want string
	}{
		{driver.Info{}, "any"}, {driver.Info{MinTTL: 5e7}, "from 50ms"}, {driver.Info{MinTTL: 1e7, MaxTTL: endlessLeft}, "10ms to 10 years"},
	} {
		if got := ttls(tt.info); got != tt.want {
			t.Errorf("ttls(%v, %v) = %q, want %q", tt.info.MinTTL, tt.info.MaxTTL, got, tt.want)
		}
	}
}
