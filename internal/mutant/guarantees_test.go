package mutant

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// broken is the package of the broken drivers, the mutants of the clauses.
const broken = "driver/drivertest"

// TestGuarantees checks that docs/guarantees.md and the list of mutants agree: each guarantee has
// the tests and the packages of its mutants, and each mutant breaks a guarantee of the page.
func TestGuarantees(t *testing.T) {
	s := newSource()
	page, err := os.ReadFile(filepath.Join(s.root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	clauses := literals(t, filepath.Join(s.root, broken))
	seen := make(map[string]bool)
	for line := range strings.SplitSeq(string(page), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| guarantee |") || strings.HasPrefix(line, "| --- |") {
			continue
		}
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			t.Errorf("want four cells:\n%s", line)
			continue
		}
		name := strings.TrimPrefix(cells[0], "| ")
		if seen[name] {
			t.Errorf("the page lists the guarantee %q twice", name)
		}
		seen[name] = true
		checks, packages := make(map[string]bool), make(map[string]bool)
		for _, check := range quoted(cells[2]) {
			if strings.HasPrefix(check, "Test") {
				continue // compared with the mutants' tests below
			}
			if !clauses[check] {
				t.Errorf("%s: the conformance suite has no clause %s", name, check)
			}
			checks[check], packages[broken] = true, true
		}
		for _, m := range all {
			if m.guarantee == name {
				packages[label(m.pkg)] = true
				for _, test := range strings.Fields(m.tests) {
					checks[test] = true
				}
			}
		}
		if len(packages) == 0 {
			t.Errorf("the guarantee %q has neither a clause nor a mutant", name)
		}
		want := fmt.Sprintf("| %s | %s | %s | %s |", name, cells[1], list(checks), list(packages))
		if line != want {
			t.Errorf("the page and the list of mutants differ. The page has:\n%s\nThe row of the list:\n%s", line, want)
		}
	}
	names := make(map[string]bool)
	for _, m := range all {
		if !seen[m.guarantee] {
			t.Errorf("%s: the page has no guarantee of this name", m.name())
		}
		if names[m.name()] {
			t.Errorf("%s: two mutants of one package break the same guarantee; keep the better one", m.name())
		}
		names[m.name()] = true
	}
}

// TestApply checks that each mutant finds the text that it changes, and that its tests exist.
func TestApply(t *testing.T) {
	s := newSource()
	texts := make(map[string]map[string]bool)
	shared := literals(t, filepath.Join(s.root, "internal", "jobtest")) // cases that several packages run
	for _, m := range all {
		t.Run(m.name(), func(t *testing.T) {
			if _, _, err := s.change(m); err != nil {
				t.Error(err)
			}
			dir := filepath.Join(s.root, m.testDir())
			if texts[dir] == nil {
				texts[dir] = literals(t, dir)
			}
			if m.tests == "" {
				t.Error("no test must notice")
			}
			for _, test := range strings.Fields(m.tests) {
				for i, part := range strings.Split(test, "/") {
					if i == 0 {
						part = "func " + part
					}
					if !texts[dir][part] && (i == 0 || !shared[part]) {
						t.Errorf("the tests in %s have no %s: there is no %q", m.testDir(), test, part)
					}
				}
			}
		})
	}
}

// literals returns the possible names of tests in the Go files of dir: each string in quotes, and
// each test function, as "func TestX".
func literals(t *testing.T, dir string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Go files in %s: %q, %v", dir, files, err)
	}
	found := make(map[string]bool)
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(code), -1) {
			found[m[1]+m[2]] = true
		}
	}
	return found
}

var literal = regexp.MustCompile(`(?m)^(func Test\w+)|"([^"\n]+)"`)

// quoted returns the texts in backquotes.
func quoted(s string) []string {
	var found []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(s, -1) {
		found = append(found, m[1])
	}
	return found
}

// list returns names in order and in backquotes.
func list(names map[string]bool) string {
	return "`" + strings.Join(slices.Sorted(maps.Keys(names)), "`, `") + "`"
}
