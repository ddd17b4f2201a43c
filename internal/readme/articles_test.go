package readme

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArticles checks docs/articles.md: the points are numbered without a gap, each of them says
// what serves it or why nothing does, and all that is named there exists. The commands check
// what pages say of them.
func TestArticles(t *testing.T) {
	pages, sources := files(t, root)
	page := filepath.Join(root, "docs", "articles.md")
	counts := map[string]int{}
	known := newKnown(pages, sources)
	for i, line := range strings.Split(pages[page], "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		section, number, _ := strings.Cut(cells[0], ".")
		if !strings.HasPrefix(line, "| ") || strings.Trim(cells[0], ".0123456789") != "" {
			continue // no point
		}
		counts[section]++
		if len(cells) != 3 || number != fmt.Sprint(counts[section]) {
			t.Errorf("line %d: want three cells, the first %s.%d:\n%s", i+1, section, counts[section], line)
			continue
		}
		for _, problem := range known.check(page, cells[2]) {
			t.Errorf("%s: %s", cells[0], problem)
		}
	}
	if len(counts) != 6 {
		t.Errorf("the page has %d groups of points, want one for each of five articles, and one for all: %v", len(counts), counts)
	}
}

// known is what the repository has, by the names that pages use.
type known struct {
	pages map[string]string
	names map[string]bool // tests, examples and clauses, targets of make, and identifiers as package.Name
}

func newKnown(pages, sources map[string]string) *known {
	k := &known{pages, map[string]bool{}}
	for name, text := range sources {
		if filepath.Base(name) == "Makefile" {
			for _, m := range regexp.MustCompile(`(?m)^(\w+):`).FindAllStringSubmatch(text, -1) {
				k.names["make "+m[1]] = true
			}
		}
		if filepath.Ext(name) != ".go" {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Example)\w+)\(`).FindAllStringSubmatch(text, -1) {
			k.names[m[1]] = true
		}
		if strings.Contains(filepath.ToSlash(name), "/driver/drivertest/") {
			for _, m := range regexp.MustCompile(`"([A-Z]\w+/[A-Z]\w+)"`).FindAllStringSubmatch(text, -1) {
				k.names[m[1]] = true
			}
		}
		if !strings.HasSuffix(name, "_test.go") {
			k.addIdentifiers(text)
		}
	}
	return k
}

// addIdentifiers adds the exported identifiers of a Go file: package.Name, package.Type.Method and
// package.Type.Field.
func (k *known) addIdentifiers(source string) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return // the compiler reports it
	}
	add := func(parts ...string) { k.names[strings.Join(append([]string{file.Name.Name}, parts...), ".")] = true }
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name.Name)
				continue
			}
			receiver := d.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			if of, ok := receiver.(*ast.Ident); ok {
				add(of.Name, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(name.Name)
					}
				case *ast.TypeSpec:
					add(s.Name.Name)
					var fields *ast.FieldList
					switch of := s.Type.(type) {
					case *ast.StructType:
						fields = of.Fields
					case *ast.InterfaceType:
						fields = of.Methods
					default:
						continue
					}
					for _, field := range fields.List {
						for _, name := range field.Names {
							add(s.Name.Name, name.Name)
						}
					}
				}
			}
		}
	}
}

var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	identifier = regexp.MustCompile(`^[a-z]\w*(\.[A-Z]\w*)+$`)
	testName   = regexp.MustCompile(`^(Test|Example)[A-Z]\w*$|^[A-Z]\w+/[A-Z]\w+$|^make \w+$`)
)

// check returns what is wrong with the last cell of a point. Links must lead somewhere; TestLinks
// and TestFragments follow them. Each word in backquotes must be an identifier, a test, a target of
// make or a command of snib, or be found on a page that the cell links to.
func (k *known) check(page, cell string) []string {
	var problems []string
	var linked strings.Builder
	targets := links(cell)
	for _, target := range targets {
		linked.WriteString(k.pages[filepath.Join(filepath.Dir(page), target)])
	}
	named := len(targets)
	for _, m := range quoted.FindAllStringSubmatch(regexp.MustCompile(`\[[^\]]*\]\(`).ReplaceAllString(cell, "("), -1) {
		switch name := m[1]; {
		case strings.HasPrefix(name, "snib "), strings.HasPrefix(name, "sniblab "):
			named++
		case identifier.MatchString(name) || testName.MatchString(name):
			named++
			if !k.names[name] {
				problems = append(problems, fmt.Sprintf("there is no %s", name))
			}
		case !strings.Contains(linked.String(), name):
			problems = append(problems, fmt.Sprintf("no page that is linked here has %q", name))
		}
	}
	if named == 0 && !strings.HasPrefix(cell, "n.a.: ") {
		problems = append(problems, "nothing is named that serves the point, and no reason is given (n.a.: …)")
	}
	return problems
}

func TestKnown(t *testing.T) {
	k := newKnown(
		map[string]string{"docs/a.md": "failover-grace=off"},
		map[string]string{
			"x/Makefile":                  "model: deps\n",
			"x/driver/drivertest/wait.go": "package drivertest\nvar c = \"Wait/Release\"\n",
			"x/lock_test.go":              "package snib\nfunc TestDo(t *testing.T) {}\n",
			"x/lock.go":                   "package snib\ntype Lock struct{ Name string }\nfunc (l *Lock) Token() {}\nconst TTL = 1\ntype D interface{ Renew() }\n",
		})
	tests := []struct {
		cell string
		want int // problems
	}{
		{"`snib.Lock`, `snib.Lock.Token`, `snib.Lock.Name`, `snib.TTL`, `snib.D.Renew`, `TestDo`, `Wait/Release`, `make model`", 0},
		{"[a](a.md): `failover-grace=off`", 0},
		{"[`redisfence`](a.md)", 0},
		{"`snib run`", 0},
		{"n.a.: it is about Java", 0},
		{"it is so", 1},
		{"`snib.Lock.Held`", 1},
		{"`TestDone`", 1},
		{"`Wait/Forever`", 1},
		{"`make coffee`", 1},
		{"[a](a.md): `failover-grace=on`", 1},
	}
	for _, tt := range tests {
		if got := k.check("docs/articles.md", tt.cell); len(got) != tt.want {
			t.Errorf("check(%q) = %q, want %d problems", tt.cell, slices.Clone(got), tt.want)
		}
	}
}
