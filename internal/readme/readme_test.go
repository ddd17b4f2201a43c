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
	for i, line := range strings.Split(markdown, "\n") {
		switch lang, fence := strings.CutPrefix(line, "```"); {
		case fence && !open:
			found, open = append(found, block{lang: lang, line: i + 2}), true
		case fence:
			open = false
		case open:
			found[len(found)-1].text += line + "\n"
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

// files returns the repository's Markdown and Go files by their paths. Because it reads them all,
// the test cache knows that the result depends on them.
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
		if ext != ".md" && ext != ".go" && d.Name() != "go.mod" && d.Name() != "Makefile" {
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

func readme(t *testing.T) (text string, sources map[string]string) {
	t.Helper()
	pages, sources := files(t, root)
	text = pages[filepath.Join(root, "README.md")]
	if n := strings.Count(text, "\n"); n == 0 || n > 150 {
		t.Errorf("README.md has %d lines, want 1 to 150", n)
	}
	return text, sources
}

func TestGoBlocks(t *testing.T) {
	text, sources := readme(t)
	n := 0
	for _, b := range blocks(text) {
		switch b.lang {
		case "go":
			n++
			if !slices.ContainsFunc(examples(sources), func(source string) bool { return containsLines(b.text, source) }) {
				t.Errorf("README.md:%d: the lines of this block stand in no example_*_test.go whose output is checked", b.line)
			}
		case "sh":
		default:
			t.Errorf("README.md:%d: nothing checks blocks of language %q", b.line, b.lang)
		}
	}
	if n == 0 {
		t.Error("README.md shows no Go")
	}
}

// examples returns the example files among sources that are run.
func examples(sources map[string]string) []string {
	var found []string
	for name, text := range sources {
		if ok, _ := path.Match("example_*_test.go", filepath.Base(name)); ok && strings.Contains(text, "// Output:") {
			found = append(found, text)
		}
	}
	return found
}

// TestShellBlocks runs the shell blocks of the README in the repository, with an
// empty home directory and a freshly built snib. Make only prints what it would do,
// because this test is a part of it.
func TestShellBlocks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the README shows commands of a POSIX shell")
	}
	text, _ := readme(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin, home := t.TempDir(), t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/snib")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNIB_") })
	env = append(env, "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "MAKEFLAGS=n",
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"} { // their defaults depend on HOME
		out, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			t.Fatalf("go env %s: %v", name, err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	n := 0
	for _, b := range blocks(text) {
		if b.lang != "sh" {
			continue
		}
		n++
		sh := exec.CommandContext(ctx, "sh", "-euc", b.text)
		sh.Dir, sh.Env = root, env
		out, err := sh.CombinedOutput()
		if err != nil {
			t.Errorf("README.md:%d: %v\n%s%s", b.line, err, b.text, out)
		}
		// The output must contain what the echo commands print.
		for _, m := range regexp.MustCompile(`-- echo (?:"([^"]*)"|(\w+))`).FindAllStringSubmatch(b.text, -1) {
			if want := m[1] + m[2]; !strings.Contains(string(out), want+"\n") {
				t.Errorf("README.md:%d: the output lacks %q:\n%s", b.line, want, out)
			}
		}
	}
	if n == 0 {
		t.Error("README.md shows no shell")
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

func TestBlocks(t *testing.T) {
	got := blocks("text\n```go\na\n\tb\n```\n\n```sh\nc\n```\n")
	want := []block{{"go", 3, "a\n\tb\n"}, {"sh", 8, "c\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("blocks = %+v, want %+v", got, want)
	}
}

func TestStands(t *testing.T) {
	source := "func f() {\n\tif a {\n\t\tb()\n\t}\n}\n"
	tests := []struct {
		name, text string
		want       bool
	}{
		{"Inside", "if a {\n\tb()\n}\n", true},
		{"Other", "if a {\n\tc()\n}\n", false},
		{"LineLeftOut", "if a {\n}\n", false},
		{"PartOfALine", "f a {\n\tb()\n", false},
		{"Comment", "b() // why\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := containsLines(tt.text, source); got != tt.want {
				t.Errorf("stands(%q) = %v, want %v", tt.text, got, tt.want)
			}
		})
	}
}

func TestExamples(t *testing.T) {
	got := examples(map[string]string{
		"a/example_x_test.go": "// Output:\n",
		"example_y_test.go":   "not run",
		"other_test.go":       "// Output:\n",
	})
	if len(got) != 1 {
		t.Errorf("examples = %q, want the first", got)
	}
}

func TestLinksFound(t *testing.T) {
	got := links("[a](b.md#c) [d](https://example.com) [e](#f) [`g`](h/i)")
	if want := []string{"b.md", "h/i"}; !slices.Equal(got, want) {
		t.Errorf("links = %q, want %q", got, want)
	}
}
