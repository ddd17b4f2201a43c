//go:build linux

package nemesis

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/generated/assumptions.md anew")

const page = "../../../../docs/reference/generated/assumptions.md"

// TestPage compares the table at the end of the page with the assumptions that are broken.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(text), "| store |")
	if !found {
		t.Fatalf("%s has no table", page)
	}
	want := head + strings.TrimSpace(assumptionTable()) + "\n"
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s has other assumptions; go test ./cmd/sniblab/internal/nemesis -run TestPage -args -update writes it", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
