package readme

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checks says for the blocks of each page who checks them. The pages are patterns.
var checks = []struct {
	pages string
	langs []string
	tests []string // run the blocks, or compare them with what runs; at least one does so with each block
	why   string   // no test checks the blocks, or some of them, because
}{
	{"README*.md", []string{"go", "text"}, []string{"TestPrograms", "TestTranslations"}, ""},
	{"README*.md", []string{"sh"}, []string{"TestShellBlocks", "TestPrograms"}, ""},
	{"docs/guide/*.md", []string{"go"}, []string{"TestPrograms"}, ""},
	{"docs/guide/*.md", []string{"text"}, []string{"TestPrograms"}, "lines of a crontab, whose parts the scripts of the command try"},
	{"docs/guide/operating.md", []string{"ini"}, nil, "lines of a unit file; a test can't count on systemd"},
	{"CONTRIBUTING.md", []string{"sh"}, nil, "they run all tests, and so this one"},
	{"CONTRIBUTING.md", []string{"text"}, nil, "the form of a commit message, and that of a mutant"},
	{"docs/from-setnx*.md", []string{"go"}, []string{"TestGoBlocks", "TestTranslations"}, ""},
	{"docs/from-setnx*.md", []string{"sh"}, []string{"TestShellBlocks", "TestTranslations"}, ""},
	{"docs/coming-from-redisson.md", []string{"go"}, []string{"TestGoBlocks"}, ""},
	{"docs/coming-from-redisson.md", []string{"java"}, nil, "it is what readers bring along"},
	{"docs/coming-from-redsync.md", []string{"go"}, []string{"TestGoBlocks"}, ""},
	{"docs/coming-from-commands.md", []string{"sh"}, []string{"TestPageBlocks"}, ""},
	{"docs/coming-from-commands.md", []string{"text"}, nil, "Consul is not at hand, and the page says so"},
	{"docs/lab.md", []string{"python"}, []string{"TestPage"}, ""},
	{"docs/lab.md", []string{"text"}, []string{"TestPageDialogue"}, ""},
	{"docs/command.md", []string{"sh"}, []string{"TestPageBlocks"}, ""},
	{"docs/command.md", []string{"toml"}, []string{"TestConfigPage"}, ""},
	{"docs/command.md", []string{"text"}, nil, "the forms of a call, which the scripts of the command try"},
	{"docs/serve-access.md", []string{"toml", "json"}, []string{"TestPolicyPage", "TestAuditPage"}, ""},
	{"docs/serve-access.md", []string{"sh"}, []string{"TestServeAccessPage"}, ""},
	{"docs/serve-access.md", []string{"nginx"}, []string{"TestNginxPage"}, ""},
	{"docs/serve-access.md", []string{"text"}, nil, "calls with the files of a service that runs elsewhere"},
	{"docs/stores.md", []string{"sh"}, []string{"TestPageBlocks"}, ""},
	{"docs/serve.md", []string{"sh"}, []string{"TestServePage"}, ""},
	{"docs/serve.md", []string{"python"}, []string{"TestClientOnPage"}, ""},
	{"docs/serve.md", []string{"text"}, nil, "calls with stores that run elsewhere"},
	{"docs/metrics.md", []string{"go"}, []string{"TestGoBlocks"}, ""},
	{"docs/defaults.md", []string{"go"}, []string{"TestGoBlocks"}, ""},
	{"docs/metrics.md", []string{"promql"}, []string{"TestNamedMetricsExist"}, ""},
	{"docs/metrics.md", []string{"json"}, nil, "it is output; the script release.txtar of the command checks its form"},
	{"docs/design.md", []string{"text", "mermaid"}, nil, "drawings; internal/arch compares that of the imports"},
	{"docs/choosing*.md", []string{"go", "text"}, []string{"TestPrograms", "TestTranslations"}, ""},
	{"docs/backends/*.md", []string{"go"}, []string{"TestPagePrograms"}, ""},
	{"docs/backends/*.md", []string{"text"}, []string{"TestACL", "TestRoles"}, "the tests use what is below Access; the others are short"},
	{"docs/backends/*.md", []string{"sql"}, []string{"TestRoles", "TestPermissions"}, ""},
	{"docs/backends/etcdlock.md", []string{"sh"}, []string{"TestRoles"}, ""},
	{"examples/*/README.md", []string{"python", "js"}, []string{"TestOtherLanguages"}, ""},
}

// TestEachBlockIsChecked checks that each block of each page is in the list of checks, and that
// each entry of the list has blocks and tests.
func TestEachBlockIsChecked(t *testing.T) {
	pages, sources := files(t, root)
	known := newKnown(pages, sources)
	used := make([]bool, len(checks))
	for name, text := range pages {
		page, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(text) {
			i := checkOf(filepath.ToSlash(page), b.lang)
			if i < 0 {
				t.Errorf("%s:%d: the list of checks does not say who checks blocks of language %q here", page, b.line, b.lang)
				continue
			}
			used[i] = true
		}
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "    snib ") || strings.HasPrefix(line, "    $ ") {
				t.Errorf("%s:%d: a command that is only indented is checked by nobody; make it a block", page, i+1)
			}
		}
	}
	for i, c := range checks {
		if !used[i] {
			t.Errorf("no page has blocks for %s %q", c.pages, c.langs)
		}
		if len(c.tests) == 0 && c.why == "" {
			t.Errorf("%s %q: no test, and no reason", c.pages, c.langs)
		}
		for _, test := range c.tests {
			if !known.names[test] {
				t.Errorf("%s %q: there is no %s", c.pages, c.langs, test)
			}
		}
	}
}

// checkOf returns the index of the first check for blocks of a language on a page, or -1.
func checkOf(page, lang string) int {
	for i, c := range checks {
		if ok, err := path.Match(c.pages, page); err == nil && ok && slices.Contains(c.langs, lang) {
			return i
		}
	}
	return -1
}
