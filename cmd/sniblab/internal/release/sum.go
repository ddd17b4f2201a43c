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
		tree, err := git(ctx, r.clone, "write-tree")
		if err != nil {
			return err
		}
		if sums[m.path], err = r.sum(m, tree); err != nil {
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

// sum returns the lines that go.sum has for m as it is in a tree or commit, whose go.mod is checked
// out. fillProxy checks that the go command comes to the same sum.
func (r *release) sum(m module, revision string) ([]string, error) {
	name := filepath.Join(r.tmp, "module.zip")
	w, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	dir := strings.TrimPrefix(m.dir, ".") // the root module has none
	if err := zip.CreateFromVCS(w, xmodule.Version{Path: m.path, Version: r.version}, r.clone, revision, dir); err != nil {
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
