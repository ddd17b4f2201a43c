package readme

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A block is a fenced block of Markdown.
type block struct {
	lang string
	line int // number of its first line
	text string
}

func blocks(markdown string) []block {
	var found []block
	open := false
	indent := "" // that of a block in a list
	for i, line := range strings.Split(markdown, "\n") {
		switch lang, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```"); {
		case fence && !open:
			found, open = append(found, block{lang: lang, line: i + 2}), true
			indent = line[:strings.Index(line, "`")]
		case fence:
			open = false
		case open:
			found[len(found)-1].text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return found
}

// containsLines reports whether source contains the lines of text one after the
// other, regardless of indentation.
func containsLines(text, source string) bool {
	flatten := func(s string) string {
		lines := strings.Split(strings.TrimSpace(s), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimSpace(line)
		}
		return "\n" + strings.Join(lines, "\n") + "\n"
	}
	return strings.Contains(flatten(source), flatten(text))
}

// files returns the repository's Markdown files and sources by their paths. Because it reads them
// all, the test cache knows that the result depends on them.
func files(t *testing.T, root string) (pages, sources map[string]string) {
	t.Helper()
	pages, sources = map[string]string{}, map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ext := filepath.Ext(name)
		if d.IsDir() {
			if name != root && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if ext != ".md" && ext != ".go" && ext != ".py" && ext != ".mjs" && d.Name() != "go.mod" && d.Name() != "Makefile" {
			return nil
		}
		text, err := os.ReadFile(name)
		if ext == ".md" {
			pages[name] = string(text)
		} else {
			sources[name] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages, sources
}

const root = "../.."

// goPages show Go that stands in examples. TestPrograms runs the whole programs of other pages.
var goPages = []string{
	"docs/from-setnx.md", "docs/coming-from-redisson.md", "docs/coming-from-redsync.md", "docs/metrics.md", "docs/defaults.md",
}

// shellPages show commands of a shell, which are run.
var shellPages = []string{"README.md", "README.zh.md", "README.ja.md", "docs/from-setnx.md"}

func TestReadmeIsShort(t *testing.T) {
	pages, _ := files(t, root)
	if n := len(strings.Fields(pages[filepath.Join(root, "README.md")])); n == 0 || n > 750 {
		t.Errorf("README.md has %d words, want 1 to 750", n)
	}
}

func TestGoBlocks(t *testing.T) {
	pages, sources := files(t, root)
	for _, page := range goPages {
		n := 0
		for _, b := range blocks(pages[filepath.Join(root, page)]) {
			if b.lang != "go" {
				continue
			}
			n++
			if !slices.ContainsFunc(examples(sources), func(source string) bool { return containsLines(b.text, source) }) {
				t.Errorf("%s:%d: the lines of this block stand in no example_*_test.go that is run", page, b.line)
			}
		}
		if n == 0 {
			t.Errorf("%s shows no Go", page)
		}
	}
}

// TestOtherLanguages checks that what the pages of examples in other languages show are lines of
// the programs beside them. internal/interop runs these programs.
func TestOtherLanguages(t *testing.T) {
	pages, sources := files(t, root)
	for dir, program := range map[string]string{"python": "report.py", "node": "report.mjs"} {
		dir := filepath.Join(root, "examples", dir)
		shown := blocks(pages[filepath.Join(dir, "README.md")])
		if len(shown) == 0 {
			t.Errorf("%s/README.md shows nothing", dir)
		}
		for _, b := range shown {
			if !containsLines(b.text, sources[filepath.Join(dir, program)]) {
				t.Errorf("%s/README.md:%d: the lines of this block are not in %s", dir, b.line, program)
			}
		}
	}
}

// examples returns the example files among sources that are run: those whose output is checked, and
// those that are tests.
func examples(sources map[string]string) []string {
	var found []string
	for name, text := range sources {
		if ok, _ := path.Match("example_*_test.go", filepath.Base(name)); ok &&
			(strings.Contains(text, "// Output:") || strings.Contains(text, "\nfunc Test")) {
			found = append(found, text)
		}
	}
	return found
}

// TestShellBlocks runs the shell blocks of the pages that show some in the repository, with an
// empty home directory and a freshly built snib. Make only prints what it would do, because this
// test is a part of it.
func TestShellBlocks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the README shows commands of a POSIX shell")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin, home := t.TempDir(), t.TempDir()
	// the tests have compiled most of that
	build := exec.CommandContext(ctx, "go", "build", "-race", "-o", bin, "./cmd/snib")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNIB_") })
	env = append(env, "GOFLAGS=-race", "GORACE=atexit_sleep_ms=0", "HOME="+home,
		"XDG_STATE_HOME="+filepath.Join(home, "state"), "MAKEFLAGS=n",
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"} { // their defaults depend on HOME
		out, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			t.Fatalf("go env %s: %v", name, err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	pages, _ := files(t, root)
	for _, page := range shellPages {
		n := 0
		for _, b := range blocks(pages[filepath.Join(root, page)]) {
			if b.lang != "sh" || strings.HasPrefix(b.text, newModule) { // TestPrograms runs that one
				continue
			}
			n++
			sh := exec.CommandContext(ctx, "sh", "-euc", b.text)
			sh.Dir, sh.Env = root, env
			out, err := sh.CombinedOutput()
			if err != nil {
				t.Errorf("%s:%d: %v\n%s%s", page, b.line, err, b.text, out)
			}
			// The output must contain what the echo commands print.
			for _, m := range regexp.MustCompile(`-- echo (?:"([^"]*)"|(\w+))`).FindAllStringSubmatch(b.text, -1) {
				if want := m[1] + m[2]; !strings.Contains(string(out), want+"\n") {
					t.Errorf("%s:%d: the output lacks %q:\n%s", page, b.line, want, out)
				}
			}
		}
		if n == 0 {
			t.Errorf("%s shows no shell", page)
		}
	}
}

// TestLinks follows the relative links of all pages.
func TestLinks(t *testing.T) {
	pages, _ := files(t, root)
	for name, text := range pages {
		for _, link := range links(text) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), link)); err != nil {
				t.Errorf("%s links to %s: %v", name, link, err)
			}
		}
	}
}

// links returns the targets of relative links, without their fragments.
func links(markdown string) []string {
	var found []string
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(markdown, -1) {
		if target, _, _ := strings.Cut(m[1], "#"); target != "" && !strings.Contains(target, ":") {
			found = append(found, target)
		}
	}
	return found
}

// The tests below show that the checks can fail.
