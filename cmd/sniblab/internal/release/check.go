package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// check refuses what can't be released: a version that is none or exists already, a folder for
// the files that is in use, a checkout with changes that no commit has or without its history,
// and a changelog that does not have the version.
func (r *release) check(ctx context.Context) error {
	if semver.Canonical(r.version) != r.version || r.version == "" || semver.Build(r.version) != "" {
		return fmt.Errorf("invalid version %q: want one such as v0.1.0", r.version)
	}
	if major := semver.Major(r.version); major != "v0" && major != "v1" {
		return fmt.Errorf("version %s: from v2 on, the paths of the modules must end in /%s, and they don't", r.version, major)
	}
	entries, err := os.ReadDir(r.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it, or choose another folder", r.out)
	}
	changes, err := git(ctx, r.repo, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the checkout has changes that no commit has; commit them, or remove them:\n%s", changes)
	}
	shallow, err := git(ctx, r.repo, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return err
	}
	if shallow == "true" {
		return errors.New("the checkout is shallow, so earlier releases may be missing: git fetch --unshallow --tags")
	}
	tags, err := git(ctx, r.repo, "tag", "--list", r.version, "*/"+r.version)
	if err != nil {
		return err
	}
	if tags != "" {
		return fmt.Errorf("version %s exists already; a version that was published can't be changed. The tags are:\n%s", r.version, tags)
	}
	text, err := os.ReadFile(filepath.Join(r.repo, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	r.notes, err = changesOf(string(text), r.version)
	return err
}

// changesOf returns what the changelog says about version, without the heading.
func changesOf(changelog, version string) (string, error) {
	number := strings.TrimPrefix(version, "v")
	heading := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(number) + `\] - \d{4}-\d\d-\d\d$`)
	at := heading.FindStringIndex(changelog)
	if at == nil {
		return "", fmt.Errorf("CHANGELOG.md has no section for %s: make one of [Unreleased], with a heading such as \"## [%s] - 2026-01-31\"", version, number)
	}
	section := changelog[at[1]:]
	if next := regexp.MustCompile(`(?m)^## `).FindStringIndex(section); next != nil {
		section = section[:next[0]]
	}
	if section = strings.TrimSpace(section); section == "" {
		return "", fmt.Errorf("CHANGELOG.md says nothing about %s", version)
	}
	return section, nil
}
