package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var whole = flag.Bool("whole", false, "make a release of this repository, and install it: make release-test")

const testVersion = "v0.1.0"

// TestWhole makes a release of this repository as it is in the working tree, and uses it from
// outside: each library, each kind of package, and the command.
func TestWhole(t *testing.T) {
	if !*whole {
		t.Skip("it builds the command for each platform: make release-test")
	}
	dir := copyOfRepository(t)
	r := open(t, dir, testVersion)
	// Two are enough here: each of the others takes a minute or two.
	r.platforms = []platform{{runtime.GOOS, runtime.GOARCH}, {"linux", "arm64"}}
	if err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.modules {
		if tag := m.tag(testVersion); m.public() && mustGit(t, dir, "tag", "--list", tag) != tag {
			t.Errorf("there is no tag %s", tag)
		}
	}
	u := newUser(t, r)
	t.Run("Libraries", func(t *testing.T) {
		for path, packages := range u.libraries(t) {
			if len(packages) > 0 {
				u.get(t, path, packages...)
			}
		}
	})
	t.Run("Command", func(t *testing.T) {
		if got, want := u.install(t, "--version"), "snib "+testVersion+", "+runtime.Version(); !strings.HasPrefix(got, want) {
			t.Errorf("the installed command prints %q, want %q", got, want)
		}
		if got := u.run(t, u.dir, filepath.Join(u.dir, "bin", "snib"), "run", "-u", "sqlite:"+u.dir+"/locks.db", "demo", "--",
			"echo", "locked"); got != "locked" {
			t.Errorf("snib run printed %q, want locked", got)
		}
	})
	t.Run("Next", func(t *testing.T) { checkNext(t, dir) })
	t.Run("Files", func(t *testing.T) { checkFiles(t, r, filepath.Join(u.dir, "bin", "snib")) })
}

// checkNext checks that a version after the one of the repository in dir may not break programs.
func checkNext(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{"CHANGELOG.md": "## [0.1.1] - 2026-02-28\n\n- Nothing.\n"}
	commit(t, dir, files)
	next := open(t, dir, "v0.1.1")
	for _, step := range []func(context.Context) error{next.prepare, next.checkAPI} {
		if err := step(t.Context()); err != nil {
			t.Fatalf("nothing but the changelog has changed: %v", err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "etcdlock", "option.go"))
	if err != nil {
		t.Fatal(err)
	}
	// The callers of the function still compile.
	files["etcdlock/option.go"] = strings.Replace(string(text), "\nfunc Timeout(d time.Duration)", "\nfunc Timeout(d time.Duration, _ ...int)", 1)
	commit(t, dir, files)
	const want = "Timeout: changed"
	if err := open(t, dir, "v0.1.1").make(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("etcdlock.Timeout has another type: err = %v, want one with %q", err, want)
	}
}

// copyOfRepository returns a new repository with the files of the working tree, whose changelog
// has the version to release.
func copyOfRepository(t *testing.T) string {
	t.Helper()
	top := mustGit(t, ".", "rev-parse", "--show-toplevel")
	files := map[string]string{}
	for _, name := range strings.Split(mustGit(t, top, "ls-files", "--cached", "--others", "--exclude-standard", "-z"),
		"\x00") {
		text, err := os.ReadFile(filepath.Join(top, name))
		if errors.Is(err, os.ErrNotExist) || name == "" {
			continue // removed, and not yet committed; or after the last name
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	files["CHANGELOG.md"] = strings.Replace(files["CHANGELOG.md"], "## [Unreleased]", "## [Unreleased]\n\n## ["+testVersion[1:]+"] - 2026-01-31", 1)
	dir := t.TempDir()
	commit(t, dir, files)
	return dir
}

// checkFiles checks the files of the release. installed is the command that "go install" made for
// this machine with the flags of the release.
func checkFiles(t *testing.T, r *release, installed string) {
	here := platform{os: runtime.GOOS, arch: runtime.GOARCH}
	want, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, got []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Errorf("the command in %s is not what go install makes of the same sources", what)
		}
	}
	archive, err := os.Open(r.file(here, ".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	plain, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	same("the archive", fromTar(t, plain, "snib"))

	unpacked := t.TempDir()
	if _, err := (call{dir: unpacked, cmd: []string{"dpkg-deb", "--extract", r.file(here, ".deb"), "."}}).output(t.Context()); err != nil {
		t.Logf("the package for Debian is not looked into: %v", err)
	} else if got, err := os.ReadFile(filepath.Join(unpacked, "usr/bin/snib")); err != nil {
		t.Error(err)
	} else {
		same("the package for Debian", got)
		if _, err := (call{dir: unpacked, cmd: []string{"dpkg-deb", "--control", r.file(here, ".deb"), "."}}).output(t.Context()); err != nil {
			t.Error(err)
		}
		checkShared(t, unpacked)
	}
	rpm, err := os.ReadFile(r.file(here, ".rpm"))
	if err != nil || !bytes.HasPrefix(rpm, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Errorf("the RPM begins with % x, err = %v; want the magic number of RPM", rpm[:min(4, len(rpm))], err)
	}
	sbom, err := os.ReadFile(r.file(here, ".cdx.json"))
	if err != nil || !bytes.Contains(sbom, []byte(`"pkg:golang/github.com/redis/rueidis@`)) {
		t.Errorf("the bill of materials names no rueidis, or there is none: %v", err)
	}
	notes, err := os.ReadFile(filepath.Join(r.out, "NOTES.md"))
	if err != nil || !bytes.Contains(notes, []byte("### Added")) {
		t.Errorf("the notes have nothing of the changelog: %v", err)
	}
	checkSums(t, r)
}

// checkShared checks what is beside the command in a package that was unpacked into dir.
func checkShared(t *testing.T, dir string) {
	t.Helper()
	want := map[string]string{"/usr/share/man/man1/snib.1": "128+N:", "/usr/lib/systemd/system/snib.service": "User=snib\n",
		"/usr/lib/sysusers.d/snib.conf": "u snib ", "/postinst": "systemd-sysusers snib.conf"}
	for shell, file := range completions {
		want[file] = map[string]string{"bash": "complete -o default", "zsh": "#compdef snib",
			"fish": "complete -c snib"}[shell]
	}
	for file, text := range want {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !bytes.Contains(got, []byte(text)) {
			t.Errorf("the package for Debian has no %s with %q: %v", file, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "etc/snib")); err != nil || !info.IsDir() {
		t.Errorf("the package for Debian has no folder /etc/snib: %v", err)
	}
}

// checkSums checks that SHA256SUMS has each published file, with its sum.
func checkSums(t *testing.T, r *release) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, line := range strings.Split(strings.TrimSpace(string(sums)), "\n") {
		sum, name, _ := strings.Cut(line, "  ")
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); err != nil || got != sum {
			t.Errorf("%s: the sum is %s, err = %v; want %s", name, got, err, sum)
		}
		names = append(names, name)
	}
	t.Logf("files: %s", strings.Join(names, " "))
	entries, err := os.ReadDir(r.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); !slices.Contains(append(names, "SHA256SUMS", "proxy"), name) {
			t.Errorf("%s has no sum", name)
		}
	}
}

// fromTar returns the contents of the file called name in a tar file.
func fromTar(t *testing.T, archive io.Reader, name string) []byte {
	t.Helper()
	for files := tar.NewReader(archive); ; {
		h, err := files.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == name {
			data, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
}
