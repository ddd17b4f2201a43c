package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLinks checks that the program links nothing of the laboratory and of what tests are made of:
// these packages start servers, run programs, and write files that no operator asked for.
func TestLinks(t *testing.T) {
	const ours = "github.com/sniblock/snib/"
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	if len(all) < 100 {
		t.Fatalf("go list names %d packages", len(all))
	}
	for _, path := range all {
		dir, isOurs := strings.CutPrefix(path, ours)
		ofTests := strings.HasPrefix(dir, "cmd/sniblab") || strings.HasPrefix(dir, "internal/") || strings.HasSuffix(dir, "test")
		if path == "testing" || isOurs && ofTests {
			t.Errorf("the program links %s", path)
		}
	}
}
