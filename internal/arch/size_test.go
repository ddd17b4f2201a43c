package arch

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A part is a row of a table in docs/budget.md: folders, and how many lines they may have.
type part struct {
	name           string
	isSupport      bool     // of the table of what only tests, releases and readers use
	folders        []string // "." has the files of the root only
	product, tests size
}

// A size is a number of lines, and the most that there may be.
type size struct{ lines, most int }

// budgetRow matches a row of the table: | name | `folder` `folder` | product | tests |
var budgetRow = regexp.MustCompile("(?m)^\\| ([a-z -]+) \\| (`[^|]+`) \\| ([0-9,]+) \\| ([0-9,]+) \\|")

// sizes returns the parts of the repository as docs/budget.md has them, with their lines of Go, Lua
// and SQL, and the words of all pages.
func sizes(fsys fs.FS) (parts []*part, words size, err error) {
	page, _ := fs.ReadFile(fsys, "docs/budget.md") // without it, there are no parts
	number := func(text []byte) int {
		n, _ := strconv.Atoi(strings.ReplaceAll(string(text), ",", ""))
		return n
	}
	supportBegins := bytes.Index(page, []byte("| support and tooling |"))
	for _, at := range budgetRow.FindAllSubmatchIndex(page, -1) {
		text := func(group int) []byte { return page[at[2*group]:at[2*group+1]] }
		p := &part{name: string(text(1)), product: size{most: number(text(3))}, tests: size{most: number(text(4))}}
		p.isSupport = supportBegins >= 0 && at[0] > supportBegins
		for folder := range strings.FieldsSeq(string(text(2))) {
			p.folders = append(p.folders, strings.Trim(folder, "`"))
		}
		parts = append(parts, p)
	}
	if row := regexp.MustCompile(`(?m)^\| words .*\| ([0-9,]+) \|$`).FindSubmatch(page); row != nil {
		words.most = number(row[1])
	}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil || name == ".":
			return err
		case entry.IsDir():
			if strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" {
				return fs.SkipDir
			}
			return nil
		case !slices.Contains([]string{".go", ".lua", ".sql", ".md"}, path.Ext(base)):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if path.Ext(base) == ".md" {
			words.lines += len(bytes.Fields(text))
			return nil
		}
		if p := partOf(parts, path.Dir(name)); p != nil {
			at := &p.product
			if strings.HasSuffix(base, "_test.go") {
				at = &p.tests
			}
			at.lines += bytes.Count(text, []byte("\n"))
		}
		return nil
	})
	return parts, words, err
}

// partOf returns the part that a folder belongs to: that of the longest path above it.
func partOf(parts []*part, dir string) (best *part) {
	longest := -1
	for _, p := range parts {
		for _, folder := range p.folders {
			if (dir == folder || folder != "." && strings.HasPrefix(dir, folder+"/")) && len(folder) > longest {
				best, longest = p, len(folder)
			}
		}
	}
	return best
}

// checkSize finds parts that are larger than docs/budget.md allows, and folders of no part.
func checkSize(r *repo, bad report) {
	parts, words, err := sizes(r.fsys)
	if err != nil {
		bad("docs/budget.md", "%v", err)
	}
	for _, p := range parts {
		for what, s := range map[string]size{"product": p.product, "tests": p.tests} {
			if s.lines > s.most {
				bad("docs/budget.md", "the %s of %s has %d lines, and may have %d", what, p.name, s.lines, s.most)
			}
		}
	}
	if words.lines > words.most && words.most > 0 {
		bad("docs/budget.md", "the pages have %d words, and may have %d", words.lines, words.most)
	}
	for _, p := range r.pkgs {
		if len(parts) > 0 && partOf(parts, p.dir) == nil {
			bad("docs/budget.md", "%s belongs to no part", p.dir)
		}
	}
}

// TestSize prints how large the parts are, beside what they may have.
func TestSize(t *testing.T) {
	parts, words, err := sizes(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return cmp.Compare(b.product.lines, a.product.lines) })
	var b strings.Builder
	row := func(p *part) {
		fmt.Fprintf(&b, "%-20s %7d of %7d %7d of %7d\n", p.name, p.product.lines, p.product.most, p.tests.lines, p.tests.most)
	}
	table := func(isSupport bool, heading string) (total part) {
		total.name = heading
		fmt.Fprintf(&b, "%-20s %18s %18s\n", heading, "lines", "tests")
		for _, p := range parts {
			if p.isSupport == isSupport {
				row(p)
				total.add(p)
			}
		}
		row(&total)
		return total
	}
	all := table(false, "product")
	b.WriteByte('\n')
	support := table(true, "support and tooling")
	all.name = "all"
	all.add(&support)
	row(&all)
	t.Logf("\n%s%-20s %7d of %7d", &b, "words", words.lines, words.most)
}

// add adds the sizes of another part.
func (p *part) add(other *part) {
	p.product.lines += other.product.lines
	p.product.most += other.product.most
	p.tests.lines += other.tests.lines
	p.tests.most += other.tests.most
}
