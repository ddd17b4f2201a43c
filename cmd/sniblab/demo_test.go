package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/demo"
)

// TestDemosHaveASection checks that docs/from-setnx.md has a section for each demo, to which the
// demo links by its name, and which says how to run it.
func TestDemosHaveASection(t *testing.T) {
	const page = "docs/from-setnx.md"
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range demo.All() {
		_, section, found := strings.Cut(string(text), `<a id="`+s.Name+"\"></a>\n\n### ")
		section, _, _ = strings.Cut(section, "<a id=")
		if !found || !strings.Contains(section, "`sniblab demo "+s.Name+"`") {
			t.Errorf("%s has no section about %s that says how to run it", page, s.Name)
		}
		if want := page + "#" + s.Name; s.Page != want {
			t.Errorf("demo %s: the page is %s, want %s", s.Name, s.Page, want)
		}
	}
}

// TestPages checks that each command of sniblab that a page names exists, with its flags.
func TestPages(t *testing.T) {
	n := 0
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		pages, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile("`(?:go run ./cmd/)?sniblab ([^`]+)`").FindAllSubmatch(text, -1) {
				n++
				cmd, rest, err := newRootCommand(io.Discard, io.Discard).Find(strings.Fields(string(m[1])))
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err != nil {
					t.Errorf("%s: sniblab %s: %v", page, m[1], err)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("the pages have %d commands", n)
	}
}

// TestInstallHint checks that a user learns how to get the server of a demo.
func TestInstallHint(t *testing.T) {
	for _, server := range []string{"redis", "postgres", "zookeeper", "mysql", "etcd"} {
		got := installHint(&demo.MissingError{Server: server, Why: "x is not installed"})
		if !strings.HasPrefix(got, "x is not installed; ") || !strings.Contains(got, "apt install ") {
			t.Errorf("hint for %s = %q", server, got)
		}
	}
	if got := installHint(&demo.MissingError{Server: "other", Why: "x is not installed"}); got != "x is not installed" {
		t.Errorf("hint for an unknown server = %q", got)
	}
}
