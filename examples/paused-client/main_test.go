package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

func TestMain(m *testing.M) {
	if isClient() { // start has started another process of this test program
		os.Exit(serve(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write the output into README.md")

// TestScenes checks that each scene ends as expected on each store, and that the
// README shows the output.
func TestScenes(t *testing.T) {
	tests := []struct {
		store string
		url   func(*testing.T) string
	}{
		{"sqlite", func(t *testing.T) string { return t.TempDir() }},
		{"redis", func(t *testing.T) string { return redistest.Single(t, redistest.Password("hush")).URL() }},
		{"postgres", func(t *testing.T) string { return pgtest.Start(t).URL() }},
	}
	for _, tt := range tests {
		t.Run(tt.store, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			args := []string{"-store", tt.store, "-url", tt.url(t)}
			err := run(t.Context(), args, &out)
			for errors.Is(err, errTooBusy) {
				t.Logf("once more: %v", err)
				out.Reset()
				err = run(t.Context(), args, &out)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			if *update && tt.store == "sqlite" {
				writeREADME(t, out.String())
			}
			want := strings.Replace(readREADME(t), "sqlite", tt.store, 1)
			if got, want := mask(t, out.String()), mask(t, want); got != want {
				t.Errorf("got\n%s\nwant, as in the README,\n%s", got, want)
			}
		})
	}
}

// block matches the output in the README.
var block = regexp.MustCompile("(?s)```text\n(.*?)```")

func readREADME(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := block.FindSubmatch(page)
	if found == nil {
		t.Fatal("the README shows no output")
	}
	return string(found[1])
}

func writeREADME(t *testing.T, output string) {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	page = block.ReplaceAllLiteral(page, []byte("```text\n"+output+"```"))
	if err = os.WriteFile("README.md", page, 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	clock = regexp.MustCompile(`(?m)^ *[0-9]+\.[0-9]{3}s`)
	token = regexp.MustCompile(`(?m) +([0-9]{16})$`)
)

// mask replaces what differs from run to run: times and tokens. It checks that tokens increase
// from hold to hold, and that lines fit a terminal.
func mask(t *testing.T, output string) string {
	t.Helper()
	for line := range strings.Lines(output) {
		if len(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
	numbers, last := make(map[string]int), ""
	output = token.ReplaceAllStringFunc(output, func(found string) string {
		text := strings.TrimSpace(found)
		if numbers[text] == 0 {
			numbers[text] = len(numbers) + 1
			if text <= last {
				t.Errorf("fencing token %s comes after %s", text, last)
			}
			last = text
		}
		return fmt.Sprintf(" token %d", numbers[text])
	})
	return clock.ReplaceAllString(output, "TIME")
}

// TestRefuses checks that bad arguments and missing stores are reported without the password.
func TestRefuses(t *testing.T) {
	port := livetest.FreePort(t)
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"-store", "mongo"}, "want sqlite, redis or postgres"},
		{[]string{"mongo"}, "unexpected argument"},
		{[]string{"-store", "sqlite", "-url", t.TempDir() + "/nowhere"}, "nowhere"},
		{[]string{"-store", "redis", "-url", "redis://:hush@[::1"}, "want redis://"},
		{[]string{"-store", "redis", "-url", fmt.Sprintf("redis://:hush@127.0.0.1:%d", port)}, "refused"},
		{[]string{"-store", "postgres", "-url", "postgres://me:hush@[::1"}, "parse"},
		{[]string{"-store", "postgres", "-url", fmt.Sprintf("postgres://me:hush@127.0.0.1:%d", port)}, "refused"},
	}
	for _, tt := range tests {
		err := run(t.Context(), tt.args, new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("run(%q) = %v, want an error with %q, and no password", tt.args, err, tt.want)
		}
	}
}

// TestInterrupted checks that an interrupted run ends at once and leaves no client behind.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := listener(func(line string) {
		if strings.Contains(line, "is stopped") {
			cancel() // while B waits for the lock
		}
	})
	err := run(ctx, []string{"-url", t.TempDir()}, out)
	if err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("run = %v, want that it was cancelled", err)
	}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Fatalf("lists of children: %q, %v", lists, err)
	}
	for _, list := range lists {
		// A thread may have ended meanwhile.
		if left, err := os.ReadFile(list); err == nil && len(left) > 0 {
			t.Errorf("processes %sare left", left)
		}
	}
}

type listener func(line string)

func (l listener) Write(line []byte) (int, error) {
	l(string(line))
	return len(line), nil
}
