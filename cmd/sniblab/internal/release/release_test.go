package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "github.com/sniblock/snib"

// small returns the files of a repository with four modules, which require each other as those
// of snib do.
func small() map[string]string {
	return map[string]string{
		"LICENSE":      "a licence\n",
		"README.md":    "# snib\n",
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-31\n\n### Added\n\n- Locks.\n\n## [0.0.1] - 2026-01-01\n\n- Nothing.\n",
		"go.work":      "go 1.26.0\n\nuse (\n\t.\n\t./cmd/snib\n\t./internal/tool\n\t./xlock\n)\n",
		"go.mod":       "module " + root + "\n\ngo 1.26.0\n",
		"snib.go":      "package snib\n\nfunc Lock() string { return \"locked\" }\n",
		"xlock/go.mod": "module " + root + "/xlock\n\ngo 1.26.0\n\nrequire " + root + " v0.0.0\n\nreplace " + root + " => ../\n",
		"xlock/x.go":   "package xlock\n\nimport \"" + root + "\"\n\nfunc Lock() string { return snib.Lock() + \" in x\" }\n",
		"cmd/snib/go.mod": "module " + root + "/cmd/snib\n\ngo 1.26.0\n\nrequire (\n\t" + root + " v0.0.0 // indirect\n\t" + root + "/xlock v0.0.0\n)\n\n" +
			"replace (\n\t" + root + " => ../../\n\t" + root + "/xlock => ../../xlock\n)\n",
		"cmd/snib/go.sum": "",
		"cmd/snib/main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"runtime/debug\"\n\n\t\"" + root + "/xlock\"\n)\n\n" +
			"func main() {\n\tinfo, _ := debug.ReadBuildInfo()\n\tfmt.Println(info.Main.Version, xlock.Lock())\n}\n",
		"internal/tool/go.mod":  "module " + root + "/internal/tool\n\ngo 1.26.0\n\nrequire " + root + " v0.0.0\n\nreplace " + root + " => ../../\n",
		"internal/tool/go.sum":  "",
		"internal/tool/tool.go": "package tool\n\nimport _ \"" + root + "\"\n",
	}
}

// TestMain makes this process and its children commit as nobody in particular.
func TestMain(m *testing.M) {
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		os.Setenv("GIT_"+who+"_NAME", "A. Nobody")
		os.Setenv("GIT_"+who+"_EMAIL", "nobody@example.com")
	}
	os.Exit(m.Run())
}

// commit writes files into the repository in dir, which it makes if there is none, and commits
// them.
func commit(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		mustGit(t, dir, "init", "-q", "-b", "main")
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mustGit(t, dir, "add", "--all")
	mustGit(t, dir, "commit", "-q", "-m", "a change")
}

func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(t.Context(), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// open returns a release of the repository in dir, whose files go to a temporary folder.
func open(t *testing.T, dir, version string) *release {
	t.Helper()
	r, cleanup, err := newRelease(dir, filepath.Join(t.TempDir(), "dist"), version, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cleanup)
	return r
}

func TestRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		version string                         // v0.1.0 if empty
		files   map[string]string              // committed in addition
		change  func(t *testing.T, dir string) // not committed
		want    string
	}{
		{name: "NoVersion", version: "latest", want: `invalid version "latest"`},
		{name: "ShortVersion", version: "v0.1", want: `invalid version "v0.1"`},
		{name: "Major", version: "v2.0.0", want: "must end in /v2"},
		{name: "Dirty", want: "changes that no commit has", change: func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "Tagged", want: "v0.1.0 exists already", change: func(t *testing.T, dir string) { mustGit(t, dir, "tag", "xlock/v0.1.0") }},
		{name: "NotInChangelog", version: "v0.2.0", want: "no section for v0.2.0"},
		{name: "ChangelogWithoutDate", want: "no section for v0.1.0", files: map[string]string{"CHANGELOG.md": "## [0.1.0]\n\n- Locks.\n"}},
		{name: "NothingInChangelog", want: "says nothing about v0.1.0", files: map[string]string{"CHANGELOG.md": "## [0.1.0] - 2026-01-31\n\n## [0.0.1] - 2026-01-01\n\n- Nothing.\n"}},
		{name: "ForeignReplace", want: "xlock/go.mod replaces example.com/y",
			files: map[string]string{"xlock/go.mod": small()["xlock/go.mod"] + "\nreplace example.com/y => ../y\n"}},
		{name: "InternalRequired", want: "requires " + root + "/internal/tool, which is not released",
			files: map[string]string{"xlock/go.mod": small()["xlock/go.mod"] + "\nrequire " + root + "/internal/tool v0.0.0\n"}},
		{name: "Circle", want: "requires itself", files: map[string]string{"go.mod": small()["go.mod"] + "\nrequire " + root + "/xlock v0.0.0\n"}},
		{name: "Incomplete", want: "module " + root + "/cmd/snib is not complete",
			files: map[string]string{"cmd/snib/go.mod": "module " + root + "/cmd/snib\n\ngo 1.26.0\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			commit(t, dir, small())
			if tt.files != nil {
				commit(t, dir, tt.files)
			}
			if tt.change != nil {
				tt.change(t, dir)
			}
			if tt.version == "" {
				tt.version = "v0.1.0"
			}
			before := mustGit(t, dir, "for-each-ref")
			r := open(t, dir, tt.version)
			r.platforms = nil // not reached
			if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want one with %q", err, tt.want)
			}
			if _, err := os.Stat(r.out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder for the files is there, err = %v", err)
			}
			if after := mustGit(t, dir, "for-each-ref"); after != before {
				t.Errorf("a release that was refused left something behind:\n%s\nwant\n%s", after, before)
			}
		})
	}
}

func TestShallow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	commit(t, dir, small())
	commit(t, dir, map[string]string{"more.go": "package snib\n"})
	shallow := filepath.Join(t.TempDir(), "snib")
	mustGit(t, dir, "clone", "-q", "--depth=1", "file://"+filepath.ToSlash(dir), shallow)
	if err := open(t, shallow, "v0.1.0").make(t.Context()); err == nil || !strings.Contains(err.Error(), "is shallow") {
		t.Errorf("make = %v, want an error about the history", err)
	}
}

func TestOutIsInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	commit(t, dir, small())
	r := open(t, dir, "v0.1.0")
	r.out = dir
	if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("make = %v, want an error about the folder", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "snib.go")); err != nil {
		t.Errorf("the folder has lost a file: %v", err)
	}
}

// TestSources makes a release of a small repository, and uses it from outside.
func TestSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	commit(t, dir, small())
	head := mustGit(t, dir, "rev-parse", "HEAD")
	r := open(t, dir, "v0.1.0")
	if err := r.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.sources(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.publishTags(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got, want := mustGit(t, dir, "tag", "--list"), "cmd/snib/v0.1.0\nv0.1.0\nxlock/v0.1.0"; got != want {
		t.Errorf("tags = %q, want %q", got, want)
	}
	if got := mustGit(t, dir, "rev-parse", "main"); got != head {
		t.Errorf("main moved to %s, want %s", got, head)
	}
	if got := mustGit(t, dir, "rev-parse", "cmd/snib/v0.1.0^{commit}~1"); got != head {
		t.Errorf("the release commit is after %s, want %s", got, head)
	}
	for _, m := range []string{"cmd/snib", "xlock", "internal/tool"} {
		text := mustGit(t, dir, "show", "v0.1.0:"+m+"/go.mod")
		if strings.Contains(text, "replace") || strings.Contains(text, "v0.0.0") || !strings.Contains(text, root+" v0.1.0") {
			t.Errorf("%s/go.mod of the release, want one without replace that requires v0.1.0:\n%s", m, text)
		}
	}
	if want := "### Added\n\n- Locks."; r.notes != want {
		t.Errorf("notes = %q, want %q", r.notes, want)
	}

	u := newUser(t, r)
	u.get(t, root, root+"/xlock")
	if got, want := u.install(t), "v0.1.0 locked in x"; got != want {
		t.Errorf("the installed command prints %q, want %q", got, want)
	}
}

// TestSameAgain makes a release twice, which must give the same commit.
func TestSameAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	commit(t, dir, small())
	var commits []string
	for range 2 {
		r := open(t, dir, "v0.1.0")
		if err := r.sources(t.Context()); err != nil {
			t.Fatal(err)
		}
		commits = append(commits, mustGit(t, r.clone, "rev-parse", "HEAD"))
	}
	if commits[0] != commits[1] {
		t.Errorf("the release commits are %q, want the same twice", commits)
	}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	broken := map[string]string{
		"snib.go":    "package snib\n\nfunc Lock(name string) string { return name }\n",
		"xlock/x.go": strings.ReplaceAll(small()["xlock/x.go"], "snib.Lock()", `snib.Lock("a")`),
	}
	tests := []struct {
		name          string
		first, second string
		files         map[string]string
		want          string // "": released
	}{
		{name: "Same", first: "v0.1.0", second: "v0.1.1"},
		{name: "Added", first: "v1.1.0", second: "v1.1.1", files: map[string]string{"more.go": "package snib\n\nfunc More() {}\n"}},
		{name: "BrokenInPatch", first: "v0.1.0", second: "v0.1.1", files: broken, want: "Lock: changed from func() string to func(string) string"},
		{name: "BrokenInMinorBefore1", first: "v0.1.0", second: "v0.2.0", files: broken},
		{name: "BrokenInMinor", first: "v1.1.0", second: "v1.2.0", files: broken, want: "v1.2.0 can't have incompatible changes"},
		{name: "BrokenInternally", first: "v1.1.0", second: "v1.1.1", files: map[string]string{"internal/tool/tool.go": "package tool\n\nimport \"" + root + "\"\n\nvar Lock = snib.Lock\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			commit(t, dir, small())
			commit(t, dir, map[string]string{"CHANGELOG.md": fmt.Sprintf("## [%s] - 2026-02-01\n\n- More.\n\n## [%s] - 2026-01-31\n\n- Locks.\n", tt.second[1:], tt.first[1:])})
			first := open(t, dir, tt.first)
			if err := first.sources(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := first.publishTags(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tt.files != nil {
				commit(t, dir, tt.files)
			}
			err := open(t, dir, tt.second).sources(t.Context())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("err = %v, want one with %q", err, tt.want)
			}
		})
	}
}
