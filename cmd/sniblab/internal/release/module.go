package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A module is one module of the repository.
type module struct {
	dir  string // relative to the root of the repository, with slashes; "." is the root module
	path string
	file *modfile.File
}

// tag returns the tag of m at version: go finds a module below the root by the folder's name
// before it.
func (m module) tag(version string) string { return path.Join(m.dir, version) }

// public reports whether m is released. Modules below internal only have tests and tools, and
// cmd/sniblab links other libraries in versions that it has to replace.
func (m module) public() bool {
	return !strings.HasPrefix(m.dir, "internal/") && m.dir != "cmd/sniblab"
}

// prepare makes the release commit in a clone, and tags each module there.
func (r *release) prepare(ctx context.Context) error {
	// As a URL, so that git copies everything: the clone must not change if the repository does.
	if _, err := git(ctx, r.tmp, "clone", "-q", "file://"+filepath.ToSlash(r.repo), r.clone); err != nil {
		return err
	}
	head, err := git(ctx, r.repo, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := git(ctx, r.clone, "checkout", "-q", "--detach", head); err != nil {
		return err
	}
	if r.modules, err = loadModules(ctx, r.clone); err != nil {
		return err
	}
	r.root = r.modules[0].path
	for _, m := range r.modules {
		if err := r.rewrite(m); err != nil {
			return err
		}
	}
	if err := r.addSums(ctx); err != nil {
		return err
	}
	if err := r.gitDated(ctx, "-c", "commit.gpgsign=false", "commit", "-q", "--all", "--message", r.message()); err != nil {
		return err
	}
	for _, m := range r.modules {
		if m.public() {
			if err := r.gitDated(ctx, "-c", "tag.gpgsign=false", "tag", "--annotate", "--message", "snib "+r.version, m.tag(r.version)); err != nil {
				return err
			}
		}
	}
	r.logf("made the release commit and %d tags", len(r.tags()))
	return nil
}

func (r *release) message() string {
	return fmt.Sprintf("release %s\n\nThe modules require each other at %s, and no go.mod has a replace of them.\nThis commit is beside main on purpose: there, the modules use each other's\nfolders.", r.version, r.version)
}

// tags returns the tags of all modules.
func (r *release) tags() []string {
	var tags []string
	for _, m := range r.modules {
		if m.public() {
			tags = append(tags, m.tag(r.version))
		}
	}
	return tags
}

// publishTags copies the tags, and with them the release commit, into the repository: all or
// none.
func (r *release) publishTags(ctx context.Context) error {
	args := []string{"push", "-q", "--atomic", "origin"}
	for _, tag := range r.tags() {
		args = append(args, "refs/tags/"+tag)
	}
	_, err := git(ctx, r.clone, args...)
	return err
}

// loadModules returns the modules of the checkout in dir. Each comes after those that it
// requires, and the root module is the first.
func loadModules(ctx context.Context, dir string) ([]module, error) {
	list, err := git(ctx, dir, "ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	found := map[string]module{}
	for _, name := range strings.Fields(list) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, err
		}
		found[file.Module.Mod.Path] = module{path.Dir(name), file.Module.Mod.Path, file}
	}
	return inOrder(found)
}

// inOrder returns modules, each after those that it requires.
func inOrder(modules map[string]module) ([]module, error) {
	var sorted []module
	added := map[string]bool{}
	for len(sorted) < len(modules) {
		before := len(sorted)
		for _, p := range slices.Sorted(maps.Keys(modules)) { // the root module is the shortest path
			m := modules[p]
			if !added[p] && !slices.ContainsFunc(m.file.Require, func(q *modfile.Require) bool {
				_, own := modules[q.Mod.Path]
				return own && !added[q.Mod.Path]
			}) {
				added[p], sorted = true, append(sorted, m)
			}
		}
		if len(sorted) == before {
			return nil, errors.New("a module requires itself by way of others: the sums in their go.sum files could not be made")
		}
	}
	return sorted, nil
}

// own returns the module of the repository at path.
func (r *release) own(path string) (module, bool) {
	i := slices.IndexFunc(r.modules, func(m module) bool { return m.path == path })
	if i < 0 {
		return module{}, false
	}
	return r.modules[i], true
}

// rewrite makes m require the other modules at the version of the release, and drops the
// replacements of them. Other replacements are refused in modules with a tag, because they hold
// for nobody who uses the module, and "go install" refuses them.
func (r *release) rewrite(m module) error {
	for _, q := range slices.Clone(m.file.Replace) {
		if _, own := r.own(q.Old.Path); own {
			if err := m.file.DropReplace(q.Old.Path, q.Old.Version); err != nil {
				return err
			}
		} else if m.public() {
			return fmt.Errorf("%s/go.mod replaces %s: a module that is released can't do that, because users don't get the replacement", m.dir, q.Old.Path)
		}
	}
	for _, q := range slices.Clone(m.file.Require) {
		if dep, own := r.own(q.Mod.Path); own {
			if m.public() && !dep.public() {
				return fmt.Errorf("%s/go.mod requires %s, which is not released", m.dir, dep.path)
			}
			if err := m.file.AddRequire(dep.path, r.version); err != nil {
				return err
			}
		}
	}
	m.file.Cleanup()
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.clone, m.dir, "go.mod"), text, 0o644)
}
