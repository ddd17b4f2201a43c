package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestHelpExamples runs the examples that the help of commands shows, as they stand. All programs
// that they name exist.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	dir := newStore(t)
	for _, program := range []string{"make", "deploy", "report.sh", "read-report", "crawl", "make-report",
		"move-a-to-b", "train"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho \"$0 ran\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	// Other commands need a server, a terminal or another user's hold, or don't end; the scripts
	// in testdata run them in other ways.
	for _, name := range []string{"run", "fence", "ls", "leaks", "wait", "doctor"} {
		out, code := snib(t, "help", name)
		_, examples, ok := strings.Cut(out, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		if code != 0 || !ok {
			t.Fatalf("help %s = %d, without examples:\n%s", name, code, out)
		}
		for line := range strings.Lines(examples) {
			line = regexp.MustCompile(`  +[^"']*$`).ReplaceAllString(strings.TrimSpace(line), "") // what follows is said about it
			if strings.Contains(line, "redis://") || strings.HasSuffix(line, "--foreign") || strings.HasSuffix(line, "--fix") ||
				strings.HasSuffix(line, "--watch") ||
				strings.Contains(line, "...") { // stands for what readers put there
				continue
			}
			got := shell(t, dir, env, line)
			if name == "run" && !strings.HasSuffix(got, " ran\n") {
				t.Errorf("%s: the program did not run: %q", line, got)
			}
		}
	}
	if got := read(filepath.Join(dir, "count.txt")); got != "1\n" {
		t.Errorf("the example of snib fence that counts wrote %q", got)
	}
}
