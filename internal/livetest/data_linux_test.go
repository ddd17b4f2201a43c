package livetest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// TestNewData sets up data folders with a program that counts its runs.
func TestNewData(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const account livetest.Account = "nobody"
	home := account.Home(t)
	install, runs := filepath.Join(home, "install"), filepath.Join(home, "runs")
	script := "#!/bin/sh\nset -e\necho run >>" + runs + "\nmkdir ${2#--dir=}\necho $1 >${2#--dir=}/file\n[ $1 != bad ]\n"
	if err := os.WriteFile(install, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		arg  string
		runs int // of the program until then
	}{{"a", 1}, {"a", 1}, {"b", 2}, {"bad", 3}, {"bad", 4}, {"a", 4}} {
		dir := filepath.Join(home, fmt.Sprint(i))
		err := account.NewData(dir, install, "--dir=", tt.arg)
		if (err != nil) != (tt.arg == "bad") {
			t.Fatalf("folder %d, with %q = %v", i, tt.arg, err)
		}
		text, _ := os.ReadFile(filepath.Join(dir, "file"))
		if err == nil && string(text) != tt.arg+"\n" {
			t.Errorf("folder %d has %q, want %q", i, text, tt.arg)
		}
		count, _ := os.ReadFile(runs)
		if got := strings.Count(string(count), "run"); got != tt.runs {
			t.Errorf("after folder %d, the program ran %d times, want %d", i, got, tt.runs)
		}
	}
}
