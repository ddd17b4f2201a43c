package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/demo"
)

// TestDemosHaveASection checks that docs/from-setnx.md has a section for each demo, to which the
// demo links by its name, and for nothing else.
func TestDemosHaveASection(t *testing.T) {
	const page = "docs/from-setnx.md"
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	var described, demos []string
	for _, section := range strings.Split(string(text), "<a id=\"")[1:] {
		name, rest, _ := strings.Cut(section, "\"></a>\n\n### ")
		described = append(described, name)
		if command := "`sniblab demo " + name + "`"; !strings.Contains(rest, command) {
			t.Errorf("%s: the section of %s does not say %s", page, name, command)
		}
	}
	for _, s := range demo.All() {
		demos = append(demos, s.Name)
		if want := page + "#" + s.Name; s.Page != want {
			t.Errorf("demo %s: the page is %s, want %s", s.Name, s.Page, want)
		}
	}
	slices.Sort(described)
	slices.Sort(demos)
	if !slices.Equal(described, demos) {
		t.Errorf("%s has the demos\n%q, want those of sniblab demo,\n%q", page, described, demos)
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
