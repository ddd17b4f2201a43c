package mutant

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// suite is the package of the conformance suite, and of the broken drivers for its clauses.
const suite = "driver/drivertest"

// TestGuarantees checks that each guarantee of docs/guarantees.md names clauses or tests that
// exist, and that each mutant breaks a guarantee of the page and names tests of its row.
func TestGuarantees(t *testing.T) {
	s := newSource()
	page, err := os.ReadFile(filepath.Join(s.root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	texts := make(names)
	rows := make(map[string][]string)
	for line := range strings.SplitSeq(string(page), "\n") {
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		row := guarantee.FindStringSubmatch(line)
		if row == nil {
			t.Errorf("want - **name**: promise. `Clause`, `package.Test`\n%s", line)
			continue
		}
		name := row[1]
		if rows[name] != nil {
			t.Errorf("the page lists the guarantee %q twice", name)
		}
		rows[name] = strings.Split(strings.Trim(row[2], "`"), "`, `")
		if !slices.IsSorted(rows[name]) {
			t.Errorf("%s: its tests are not in order", name)
		}
		for _, check := range rows[name] {
			dir, test, isTest := strings.Cut(check, ".Test")
			switch {
			case isTest:
				if dir == "snib" {
					dir = "."
				}
				texts.check(t, s.root, dir, "Test"+test)
			case !texts.in(t, filepath.Join(s.root, suite))[check]:
				t.Errorf("%s: the conformance suite has no clause %s", name, check)
			}
		}
	}
	seen := make(map[string]bool)
	for _, m := range all {
		if rows[m.guarantee] == nil {
			t.Errorf("%s: the page has no guarantee of this name", m.name())
		}
		if seen[m.name()] {
			t.Errorf("%s: two mutants of one package break the same guarantee; keep the better one", m.name())
		}
		seen[m.name()] = true
		for _, test := range strings.Fields(m.tests) {
			if want := label(m.testDir()) + "." + test; !slices.Contains(rows[m.guarantee], want) {
				t.Errorf("%s: the row of the page does not name %s", m.name(), want)
			}
		}
	}
}

// TestFailureRows checks that each row of docs/failures.md that claims something names tests, and
// that all tests that the page names exist.
func TestFailureRows(t *testing.T) {
	s, texts := newSource(), make(names)
	page, err := os.ReadFile(filepath.Join(s.root, "docs", "failures.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range provingTest.FindAllStringSubmatch(string(page), -1) {
		texts.check(t, s.root, m[1], m[2])
	}
	for line := range strings.SplitSeq(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 8 || strings.Contains(line, "---") || strings.TrimSpace(cells[2]) == "store" {
			continue
		}
		for _, cell := range cells[3:6] {
			cell = strings.TrimSpace(cell)
			if cell != "–" && !provingTest.MatchString(cells[6]) {
				t.Errorf("no test proves %q:\n%s", cell, line)
			}
		}
	}
}

// provingTest matches a test on the page of failures.
var provingTest = regexp.MustCompile("`([a-z/]+)[.](Test[^`]+)`")

// guarantee matches a row of the page.
var guarantee = regexp.MustCompile("^- \\*\\*(.+)\\*\\*: .+[.] ((?:`[^`]+`(?:, )?)+)$")

// TestApply checks that each mutant finds the text that it changes, and that its tests exist.
func TestApply(t *testing.T) {
	s, texts := newSource(), make(names)
	for _, m := range all {
		t.Run(m.name(), func(t *testing.T) {
			if _, _, err := s.change(m); err != nil {
				t.Error(err)
			}
			if m.tests == "" {
				t.Error("no test must notice")
			}
			for _, test := range strings.Fields(m.tests) {
				texts.check(t, s.root, m.testDir(), test)
			}
		})
	}
}

// names has the possible names of tests in each folder: each string in quotes, and each test
// function, as "func TestX".
type names map[string]map[string]bool

// check reports it if the tests in dir, below root, have no such test or subtest. The names of
// subtests may also be in a package whose cases several packages run.
func (n names) check(t *testing.T, root, dir, test string) {
	t.Helper()
	dirs := []string{dir, "internal/rowstest", "internal/outagetest"}
	for i, part := range strings.Split(test, "/") {
		in := dirs
		if i == 0 {
			part, in = "func "+part, dirs[:1]
		}
		if !slices.ContainsFunc(in, func(dir string) bool { return n.in(t, filepath.Join(root, dir))[part] }) {
			t.Errorf("the tests in %s have no %s: there is no %q", dir, test, part)
		}
	}
}

// in returns the names in the Go files of dir.
func (n names) in(t *testing.T, dir string) map[string]bool {
	t.Helper()
	if n[dir] != nil {
		return n[dir]
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Go files in %s: %q, %v", dir, files, err)
	}
	n[dir] = make(map[string]bool)
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(code), -1) {
			n[dir][m[1]+m[2]] = true
		}
	}
	return n[dir]
}

var literal = regexp.MustCompile(`(?m)^(func Test\w+)|"([^"\n]+)"`)
