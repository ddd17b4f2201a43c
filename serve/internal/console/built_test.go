package console_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// TestBuilt builds the sources and compares the result with the committed files. With UPDATE=1 it
// replaces them: that is "make console".
func TestBuilt(t *testing.T) {
	livetest.Long(t) // it installs packages of npm
	node := livetest.Binary(t, "node", "node")
	npm := livetest.Binary(t, "node", "npm")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // packages come over a network
	defer cancel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("ui")); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--prefer-offline")
	run(node, "node_modules/typescript/bin/tsc", "-p", ".")
	out := filepath.Join(dir, "built")
	run(node, "build.mjs", out)
	if os.Getenv("UPDATE") != "" {
		if err := os.RemoveAll("built"); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS("built", os.DirFS(out)); err != nil {
			t.Fatal(err)
		}
	}
	want, got := files(t, out), files(t, "built")
	if len(got) != len(want) {
		t.Errorf("the committed build has %d files, want %d; run: make console", len(got), len(want))
	}
	for name, text := range want {
		if !bytes.Equal(got[name], text) {
			t.Errorf("built/%s is not what the sources build; run: make console", name)
		}
	}
}

// files returns the files of a folder.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestNothingForeign checks that no file names a place elsewhere that a browser would load from.
func TestNothingForeign(t *testing.T) {
	known := []string{"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML", "http://www.w3.org/1999/xhtml"} // names, not places
	for name, text := range files(t, "built") {
		for _, scheme := range []string{"http://", "https://", "ws://", "wss://"} {
			for rest := text; ; {
				i := bytes.Index(rest, []byte(scheme))
				if i < 0 {
					break
				}
				rest = rest[i:]
				if !slices.ContainsFunc(known, func(k string) bool { return bytes.HasPrefix(rest, []byte(k)) }) {
					t.Errorf("%s has the address %.60q", name, rest)
				}
				rest = rest[len(scheme):]
			}
		}
	}
}
