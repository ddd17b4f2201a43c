package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// checkAPI refuses a release that breaks programs which use the release before it, unless the
// version says so: by its minor number before v1.0.0, and never from then on, because another
// major version has other module paths.
func (r *release) checkAPI(ctx context.Context) error {
	before, err := r.lastVersion(ctx)
	if err != nil {
		return err
	}
	if before == "" {
		r.logf("there is no release before %s: no API to compare with", r.version)
		return nil
	}
	breaks, err := r.compare(ctx, before)
	if err != nil {
		return err
	}
	switch {
	case breaks == "":
		r.logf("no exported API of %s has changed incompatibly", before)
	case semver.Major(r.version) == "v0" && semver.MajorMinor(r.version) != semver.MajorMinor(before):
		r.logf("incompatible changes since %s, which a new minor version may have before v1.0.0:\n%s", before, breaks)
	default:
		return fmt.Errorf("version %s can't have incompatible changes of exported API since %s:\n%s", r.version, before, breaks)
	}
	return nil
}

// lastVersion returns the greatest version below that of the release, or "" if there is none.
// Prereleases don't count: nobody may rely on them.
func (r *release) lastVersion(ctx context.Context) (string, error) {
	list, err := git(ctx, r.clone, "tag", "--list", "v*")
	if err != nil {
		return "", err
	}
	last := ""
	for _, v := range strings.Fields(list) {
		if semver.IsValid(v) && semver.Prerelease(v) == "" && semver.Compare(v, r.version) < 0 && (last == "" || semver.Compare(v, last) > 0) {
			last = v
		}
	}
	return last, nil
}

// compare returns the incompatible changes since the release before, for each module; "" if there
// are none. It compares the commits from which the two releases were made, because in these the
// modules use each other's folders: a version that is not published can't be downloaded. A
// program that is gone is such a change, too.
func (r *release) compare(ctx context.Context, before string) (string, error) {
	old, head := filepath.Join(r.tmp, "before"), filepath.Join(r.tmp, "now")
	for dir, commit := range map[string]string{old: before + "~1", head: "HEAD~1"} {
		if _, err := git(ctx, r.clone, "worktree", "add", "-q", "--detach", dir, commit); err != nil {
			return "", err
		}
	}
	modules, err := loadModules(ctx, old)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, m := range modules {
		if !m.public() {
			continue
		}
		now, ok := r.own(m.path)
		if !ok {
			fmt.Fprintf(&text, "module %s is gone\n", m.path)
			continue
		}
		was, is := filepath.Join(r.tmp, "was"), filepath.Join(r.tmp, "is")
		for file, dir := range map[string]string{was: filepath.Join(old, m.dir), is: filepath.Join(head, now.dir)} {
			if _, err := r.goRun(ctx, dir, apiTool, "-m", "-w", file, m.path); err != nil {
				return "", err
			}
		}
		changes, err := r.goRun(ctx, r.tmp, apiTool, "-m", "-incompatible", was, is)
		if err != nil {
			return "", err
		}
		if changes != "" {
			fmt.Fprintf(&text, "module %s:\n%s\n", m.path, changes)
		}
	}
	return text.String(), nil
}
