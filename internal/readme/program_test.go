package readme

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A program is a whole Go file of a page. A block of text below it is what it prints.
type program struct {
	line         int
	text, output string
}

// programs returns the programs of a page.
func programs(markdown string) (found []program) {
	all := blocks(markdown)
	for i, b := range all {
		if b.lang != "go" || !isProgram(b.text) {
			continue
		}
		p := program{line: b.line, text: b.text}
		if i+1 < len(all) && all[i+1].lang == "text" {
			p.output = all[i+1].text
		}
		found = append(found, p)
	}
	return found
}

func isProgram(text string) bool { return strings.HasPrefix(text, "package ") }

// TestPrograms runs the programs of README.md and of the guide as README.md says: each in an empty
// folder beside a checkout, by the commands that stand there. Translations have the same programs,
// and those of the pages of backends need servers.
func TestPrograms(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are those of a POSIX shell")
	}
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	if err := os.Symlink(checkout, filepath.Join(parent, "snib")); err != nil {
		t.Fatal(err)
	}
	pages, _ := files(t, root)
	commands := ""
	for _, b := range blocks(pages[filepath.Join(root, "README.md")]) {
		if b.lang == "sh" && strings.HasPrefix(b.text, newModule) {
			commands = b.text
		}
	}
	if commands == "" {
		t.Fatalf("README.md has no block that begins with %q", newModule)
	}
	for name, text := range pages {
		page, err := filepath.Rel(root, name)
		if err != nil {
			t.Fatal(err)
		}
		if dir := filepath.ToSlash(filepath.Dir(page)); dir != "." && dir != "docs" && dir != "docs/guide" || translated.MatchString(page) {
			continue
		}
		found := programs(text)
		if filepath.Dir(page) == filepath.Join("docs", "guide") && len(found) == 0 {
			t.Errorf("%s has no program", page)
		}
		for _, p := range found {
			t.Run(filepath.ToSlash(page), func(t *testing.T) {
				t.Parallel()
				runProgram(t, parent, commands, p)
			})
		}
	}
}

// newModule begins the block of README.md that makes a module, and runs the program in it.
const newModule = "go mod init "

func runProgram(t *testing.T, parent, commands string, p program) {
	t.Helper()
	file := "main.go"
	if strings.Contains(p.text, "\nfunc Test") {
		file = "main_test.go"
		commands = strings.Replace(commands, "go run ", "go test ", 1)
	}
	dir := filepath.Join(parent, filepath.Base(t.Name())+strconv.Itoa(p.line))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(p.text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-euc", commands)
	sh.Dir, sh.Env = dir, append(os.Environ(), "GOWORK=") // a user has no workspace
	var diagnostics strings.Builder
	sh.Stderr = &diagnostics
	out, err := sh.Output()
	if err != nil {
		t.Fatalf("line %d: %v\n%s%s", p.line, err, out, &diagnostics)
	}
	if p.output != "" && string(out) != p.output {
		t.Errorf("line %d: the program prints\n%s\nthe page says\n%s", p.line, out, p.output)
	}
}
