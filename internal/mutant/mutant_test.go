package mutant

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A mutant is a change that breaks a guarantee. No two mutants have the same guarantee and the same
// package.
type mutant struct {
	guarantee string // its name in docs/guarantees.md
	pkg       string // the folder of the package, below the root
	in        string // the declaration to change: f, T.method, or a constant, a variable or a type
	old, new  string // old stands there once; white space around its lines does not count
	tests     string // the tests that must notice, such as "TestRows/Prune TestCrash"
	testsIn   string // the folder of these tests, if it is not pkg
}

var all = slices.Concat(coreMutants, driverMutants, helperMutants, serveMutants)

// name returns the guarantee and the package.
func (m mutant) name() string { return m.guarantee + "/" + label(m.pkg) }

// label returns what a page calls the package in dir.
func label(dir string) string {
	if dir == "." {
		return "snib"
	}
	return dir
}

// testDir returns the folder whose tests must notice, below the root.
func (m mutant) testDir() string { return cmp.Or(m.testsIn, m.pkg) }

// A source is the repository. It keeps the packages that it has parsed.
type source struct {
	root     string
	packages map[string]map[string][]part // by directory and declaration
}

// A part is a declaration in a file.
type part struct {
	file       string
	code       string // the whole file
	start, end int    // the offsets of the part
}

func newSource() *source {
	return &source{root: filepath.Join("..", ".."), packages: make(map[string]map[string][]part)}
}

// change returns the file that m changes, and its new content.
func (s *source) change(m mutant) (file, code string, err error) {
	parts, err := s.find(m)
	if err != nil {
		return "", "", err
	}
	var lines []string
	for line := range strings.SplitSeq(m.old, "\n") {
		lines = append(lines, regexp.QuoteMeta(strings.TrimSpace(line)))
	}
	old := regexp.MustCompile(strings.Join(lines, `[ \t]*\n[ \t]*`))
	found := 0
	for _, p := range parts {
		for _, at := range old.FindAllStringIndex(p.code[p.start:p.end], -1) {
			found++
			file, code = p.file, p.code[:p.start+at[0]]+m.new+p.code[p.start+at[1]:]
		}
	}
	if found != 1 {
		return "", "", fmt.Errorf("%s of package %s contains this text %d times, want once: give the text as it is now, "+
			"or more of it:\n%s", m.in, label(m.pkg), found, m.old)
	}
	return file, code, nil
}

// find returns where the text of m has to be. There are several parts if files for several systems
// have the same declaration.
func (s *source) find(m mutant) ([]part, error) {
	dir := filepath.Join(s.root, m.pkg)
	if s.packages[dir] == nil {
		decls, err := parse(dir)
		if err != nil {
			return nil, err
		}
		s.packages[dir] = decls
	}
	if parts := s.packages[dir][m.in]; len(parts) > 0 {
		return parts, nil
	}
	return nil, fmt.Errorf("package %s has no function, T.method, constant, variable or type %q", label(m.pkg), m.in)
}

// parse returns the declarations of the package in dir, without its tests.
func parse(dir string) (map[string][]part, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	decls := make(map[string][]part)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		code, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, code, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		add := func(name string, node ast.Node) {
			at := fset.File(file.FileStart)
			decls[name] = append(decls[name], part{at.Name(), string(code), at.Offset(node.Pos()), at.Offset(node.End())})
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				add(receiver(decl)+decl.Name.Name, decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name.Name, spec)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							add(id.Name, spec)
						}
					}
				}
			}
		}
	}
	return decls, nil
}

// receiver returns "T." if decl is a method of T.
func receiver(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return ""
	}
	expr := decl.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr: // a generic type
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		default:
			return e.(*ast.Ident).Name + "."
		}
	}
}
