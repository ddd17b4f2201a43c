package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	xmodule "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// addSums adds the sums of the repository's modules to the go.sum files of those that require
// them, as the go command would if the release were published. go.work does not need them, but
// a checkout of the release without go.work does.
func (r *release) addSums(ctx context.Context) error {
	sums := map[string][]string{} // lines of go.sum, by the path of the module
	for _, m := range r.modules {
		var lines []string
		for _, q := range m.file.Require {
			lines = append(lines, sums[q.Mod.Path]...)
		}
		if err := addLines(filepath.Join(r.clone, m.dir, "go.sum"), lines); err != nil {
			return err
		}
		if _, err := git(ctx, r.clone, "add", "--all"); err != nil { // the file may be new
			return err
		}
		var err error
		if sums[m.path], err = r.sum(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// addLines adds lines to the file, and sorts its lines. A module that requires only modules of this
// repository has no such file before.
func addLines(name string, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all := slices.AppendSeq(lines, strings.Lines(string(text)))
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	slices.Sort(all)
	return os.WriteFile(name, []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644)
}

// sum returns the lines that go.sum has for m. fillProxy checks that the go command comes to
// the same sum.
func (r *release) sum(ctx context.Context, m module) ([]string, error) {
	files, err := r.files(ctx, m)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(r.tmp, "module.zip")
	w, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := zip.Create(w, xmodule.Version{Path: m.path, Version: r.version}, files); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	all, err := dirhash.HashZip(name, dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(r.clone, m.dir, "go.mod"))
	})
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s %s %s", m.path, r.version, all),
		fmt.Sprintf("%s %s/go.mod %s", m.path, r.version, mod),
	}, nil
}

// A file is one file of a module's zip.
type file struct{ path, disk string }

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.disk) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.disk) }

// files returns the files of m: those of git below its folder that belong to no other module, and
// the licence of the root, which the go command adds to each module that has none.
func (r *release) files(ctx context.Context, m module) ([]zip.File, error) {
	list, err := git(ctx, r.clone, "ls-files", "-z", "--", m.dir)
	if err != nil {
		return nil, err
	}
	var files []zip.File
	licensed := false
	for _, name := range strings.Split(strings.Trim(list, "\x00"), "\x00") {
		if r.moduleOf(name).path != m.path {
			continue
		}
		in := name
		if m.dir != "." {
			in = strings.TrimPrefix(name, m.dir+"/")
		}
		licensed = licensed || in == "LICENSE"
		files = append(files, file{in, filepath.Join(r.clone, name)})
	}
	if license := filepath.Join(r.clone, "LICENSE"); !licensed {
		if _, err := os.Stat(license); err == nil {
			files = append(files, file{"LICENSE", license})
		}
	}
	return files, nil
}

// moduleOf returns the module that the file belongs to: the one with the longest folder above it.
func (r *release) moduleOf(name string) module {
	var of module
	for _, m := range r.modules {
		if (m.dir == "." || strings.HasPrefix(name, m.dir+"/")) && len(m.path) > len(of.path) {
			of = m
		}
	}
	return of
}
