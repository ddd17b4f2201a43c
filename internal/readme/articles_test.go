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

// TestArticles checks docs/articles.md: the points of each article are numbered without a gap, each
// row says what serves its points or why nothing does, and all that is named there exists. The
// commands check what pages say of them.
func TestArticles(t *testing.T) {
	pages, sources := files(t, root)
	page := filepath.Join(root, "docs", "articles.md")
	points := map[int][]int{} // by article
	known := newKnown(pages, sources)
	for i, line := range strings.Split(pages[page], "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "idea" || cells[0] == "---" {
			continue
		}
		if len(cells) != 3 {
			t.Errorf("line %d: want three cells:\n%s", i+1, line)
			continue
		}
		for _, point := range strings.Split(cells[1], ", ") {
			var article, n int
			if _, err := fmt.Sscanf(point, "%d.%d", &article, &n); err != nil {
				t.Errorf("line %d: %q is no point", i+1, point)
			}
			points[article] = append(points[article], n)
		}
		for _, problem := range known.check(page, cells[2]) {
			t.Errorf("%s: %s", cells[0], problem)
		}
	}
	// How many points each article has, and at last what readers of all look for.
	for article, want := range []int{47, 42, 39, 59, 19, 5} {
		slices.Sort(points[article])
		for n := 1; n <= max(want, len(points[article])); n++ {
			if n > len(points[article]) || points[article][n-1] != n {
				t.Errorf("article %d: point %d is missing, or one before it is there twice", article, n)
				break
			}
		}
	}
}

// TestMakeTargets checks that the targets of make that pages name exist.
func TestMakeTargets(t *testing.T) {
	pages, sources := files(t, root)
	known := newKnown(pages, sources)
	target := regexp.MustCompile("`(?:[A-Z]+=[^ ]+ |[A-Z]+=[$][(][^)]+[)] )?(make [a-z-]+)")
	for page, text := range pages {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !known.names[m[1]] {
				t.Errorf("%s: there is no %s", page, m[1])
			}
		}
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
			for _, m := range regexp.MustCompile(`(?m)^([\w-]+):`).FindAllStringSubmatch(text, -1) {
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
