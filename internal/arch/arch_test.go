package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestRepository(t *testing.T) {
	r, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	r.exceptions = exceptions
	if len(r.pkgs) < len(rules) {
		t.Errorf("found %d packages, fewer than there are rules (%d): is this the root of the repository?", len(r.pkgs), len(rules))
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			c.run(r, func(where, format string, args ...any) {
				t.Errorf("%s: %s\n\tbecause: %s", where, fmt.Sprintf(format, args...), c.why)
			})
		})
	}
}

// A report tells of one violation: where it is, and what.
type report func(where, format string, args ...any)

// A check is one rule over the whole repository.
type check struct {
	name string
	why  string
	run  func(*repo, report)
}

var checks = []check{
	{"Rule", "every package has a row in rules_test.go, so that its place is decided and not drifted into", ruled},
	{"Imports", "dependencies point at the contract: a user of one part inherits nothing of the others", imports},
	{"Closed", "the command, the lab and the benchmarks are ends; what is worth sharing moves to a library", ends},
	{"Testing", "importing testing registers flags in the user's program", testingOnlyInTests},
	{"Template", "text/template and html/template turn the linker's dead-code elimination off for the whole program", noTemplates},
	{"Names", "a package is named after what it provides; these names provide anything", names},
	{"Init", "a library does nothing before it is called", noInit},
	{"ExportedVariables", "any importer could assign to it; make it a constant or a function", noExportedVariables},
	{"Variables", "state of a package is shared by strangers in one process; keep it in a value that the caller made", noState},
	{"Modules", "every module is in go.work and bears the name of its directory, or it is built and tested by nobody", modules},
	{"RootRequire", "whoever imports the core gets the standard library and nothing else", rootRequire},
	{"Conformance", "a backend is what passes the conformance suite", conformance},
	{"Assertion", "the compiler says at the type which method is missing, not at a distant call", assertion},
	{"Page", "users compare backends: every page answers the same questions in the same order", pages},
}

// at says where pos is.
func (r *repo) at(pos token.Pos) string {
	p := r.fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// ruleOf returns the row for the package in dir: the most exact one.
func ruleOf(dir string) *rule {
	var found *rule
	for i, row := range rules {
		if matches([]string{row.pkg}, dir) && (found == nil || len(row.pkg) > len(found.pkg)) {
			found = &rules[i]
		}
	}
	return found
}

func ruled(r *repo, bad report) {
	for _, p := range r.pkgs {
		if ruleOf(p.dir) == nil {
			bad(p.dir, "the package has no rule")
		}
	}
	for _, row := range rules {
		if !slices.ContainsFunc(r.pkgs, func(p *pkg) bool { return matches([]string{row.pkg}, p.dir) }) {
			bad(row.pkg, "the rule has no package")
		}
	}
}

func imports(r *repo, bad report) {
	for _, p := range r.pkgs {
		row := ruleOf(p.dir)
		if row == nil {
			continue // said by ruled
		}
		for _, f := range p.files {
			may := append([]string{p.dir, row.pkg}, row.may...)
			if f.test {
				may = append(may, row.test...)
			}
			r.imports(f, func(at token.Pos, dir string, own bool) {
				if !own && standard(dir) || matches(may, dir) {
					return
				}
				bad(r.at(at), "%s must not import %s: %s", p.dir, dir, row.why)
			})
		}
	}
}

func ends(r *repo, bad report) {
	for _, p := range r.pkgs {
		home, _, _ := strings.Cut(p.dir, "/")
		for _, f := range p.files {
			r.imports(f, func(at token.Pos, dir string, own bool) {
				if top, _, _ := strings.Cut(dir, "/"); own && slices.Contains(closed, top) && top != home {
					bad(r.at(at), "%s imports %s", p.dir, dir)
				}
			})
		}
	}
}

// notInTests returns a check that no file but a test imports what forbidden says. Packages whose name ends in "test" are
// exempt where they may be.
func notInTests(forbidden []string, exemptTests bool) func(*repo, report) {
	return func(r *repo, bad report) {
		for _, p := range r.pkgs {
			for _, f := range p.files {
				if f.test || exemptTests && strings.HasSuffix(f.ast.Name.Name, "test") {
					continue
				}
				r.imports(f, func(at token.Pos, dir string, own bool) {
					if !own && matches(forbidden, dir) {
						bad(r.at(at), "%s imports %s", p.dir, dir)
					}
				})
			}
		}
	}
}

var (
	testingOnlyInTests = notInTests([]string{"testing/..."}, true)
	noTemplates        = notInTests([]string{"text/template/...", "html/template/..."}, false)
)

func names(r *repo, bad report) {
	for _, p := range r.pkgs {
		for _, f := range p.files {
			name := strings.TrimSuffix(f.ast.Name.Name, "_test")
			if slices.Contains(badNames, name) || slices.Contains(badNames, path.Base(p.dir)) {
				bad(f.path, "package %s in %s", name, p.dir)
			}
		}
	}
}

func noInit(r *repo, bad report) {
	for _, p := range r.pkgs {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !f.test {
					bad(r.at(fn.Pos()), "%s has an init function", p.dir)
				}
			}
		}
	}
}

// variables calls yield with each package variable that is declared outside tests, and its declaration.
func variables(p *pkg, yield func(name *ast.Ident, spec *ast.ValueSpec)) {
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR || f.test {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for _, name := range spec.Names {
					if name.Name != "_" {
						yield(name, spec)
					}
				}
			}
		}
	}
}

func noExportedVariables(r *repo, bad report) {
	for _, p := range r.pkgs {
		variables(p, func(name *ast.Ident, _ *ast.ValueSpec) {
			if name.IsExported() {
				bad(r.at(name.Pos()), "%s exports the variable %s", p.dir, name.Name)
			}
		})
	}
}

// noState finds package variables that change: that are assigned to, in whole or in part, or have their address taken,
// also by a call of a method with a pointer receiver, anywhere in the package, its tests included; and those of a type
// that exists to change.
func noState(r *repo, bad report) {
	used := map[string]bool{}
	for _, p := range r.pkgs {
		flag := func(at token.Pos, name, what string) {
			if key := p.dir + "." + name; r.exceptions[key] != "" {
				used[key] = true
			} else {
				bad(r.at(at), "the package variable %s %s", name, what)
			}
		}
		declared := map[string]bool{}
		variables(p, func(name *ast.Ident, spec *ast.ValueSpec) {
			declared[name.Name] = true
			if stateful(spec) {
				flag(name.Pos(), name.Name, "is of a type that exists to change")
			}
		})
		if len(declared) > 0 {
			changes(r, p, declared, flag)
		}
	}
	for key, why := range r.exceptions {
		if why == "" {
			bad("internal/arch/rules_test.go", "the exception for %s has no reason", key)
		} else if !used[key] {
			bad("internal/arch/rules_test.go", "the exception for %s is not needed", key)
		}
	}
}

// stateful reports whether a variable is a channel, or of a type of sync or sync/atomic, or made of such.
func stateful(spec *ast.ValueSpec) bool {
	found := false
	look := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.FuncType:
			return false // runs later, with variables of its own
		case *ast.ChanType:
			found = true
		case *ast.CallExpr:
			// sync.OnceValue(f) gives a function that is constant to its callers. new(T) and make(T) are what T is.
			if id, ok := n.Fun.(*ast.Ident); !ok || id.Name != "new" && id.Name != "make" {
				return false
			}
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && (id.Name == "sync" || id.Name == "atomic") {
				found = true
			}
		}
		return !found
	}
	if spec.Type != nil {
		ast.Inspect(spec.Type, look)
	}
	for _, v := range spec.Values {
		ast.Inspect(v, look)
	}
	return found
}

// changes finds the places where a variable of the package is changed. The package is type-checked without its imports
// and whatever its build tags, which is enough to tell its variables from local ones of the same name.
func changes(r *repo, p *pkg, declared map[string]bool, flag func(at token.Pos, name, what string)) {
	var files []*ast.File
	for _, f := range p.files {
		if !f.test || !strings.HasSuffix(f.ast.Name.Name, "_test") {
			files = append(files, f.ast)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: noImports{}, FakeImportC: true, Error: func(error) {}}
	scope, _ := conf.Check(p.dir, r.fset, files, info) // errors are expected: nothing is imported

	// root returns the package variable that x is, or is a part of.
	root := func(x ast.Expr) string {
		for {
			switch e := x.(type) {
			case *ast.ParenExpr:
				x = e.X
			case *ast.SelectorExpr:
				x = e.X
			case *ast.IndexExpr:
				x = e.X
			case *ast.SliceExpr:
				x = e.X
			case *ast.StarExpr:
				x = e.X
			case *ast.Ident:
				if obj, ok := info.Uses[e].(*types.Var); ok && obj.Parent() == scope.Scope() && declared[e.Name] {
					return e.Name
				}
				return ""
			default:
				return ""
			}
		}
	}
	see := func(x ast.Expr, what string) {
		if x == nil {
			return
		}
		if name := root(x); name != "" {
			flag(x.Pos(), name, what)
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, x := range n.Lhs {
						see(x, "is assigned to")
					}
				}
			case *ast.IncDecStmt:
				see(n.X, "is assigned to")
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					see(n.Key, "is assigned to")
					see(n.Value, "is assigned to")
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					see(n.X, "has its address taken")
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
					see(n.Args[0], "is changed by "+id.Name)
				}
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && pointerMethod(info.Selections[sel]) {
					see(sel.X, "has its address taken by "+sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// pointerMethod reports whether the call of a method takes the address of what it is called on.
func pointerMethod(s *types.Selection) bool {
	if s == nil || s.Kind() != types.MethodVal {
		return false
	}
	_, isPointer := types.Unalias(s.Recv()).(*types.Pointer)
	_, wantsPointer := types.Unalias(s.Obj().(*types.Func).Signature().Recv().Type()).(*types.Pointer)
	return wantsPointer && !isPointer
}

// noImports knows no package.
type noImports struct{}

func (noImports) Import(p string) (*types.Package, error) { return nil, fs.ErrNotExist }

func modules(r *repo, bad report) {
	used := r.uses()
	for dir, mod := range r.mods {
		want := module + "/" + dir
		if dir == "." {
			want = module
		}
		if got := first(regexp.MustCompile(`(?m)^module\s+(\S+)`), mod); got != want {
			bad(path.Join(dir, "go.mod"), "the module is called %q, want %q", got, want)
		}
		if !slices.Contains(used, dir) {
			bad(path.Join(dir, "go.mod"), "go.work does not use %s", dir)
		}
	}
	for _, dir := range used {
		if _, ok := r.mods[dir]; !ok {
			bad("go.work", "it uses %s, which has no go.mod", dir)
		}
	}
}

func first(re *regexp.Regexp, text string) string {
	m := re.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return m[1]
}

func rootRequire(r *repo, bad report) {
	if line := regexp.MustCompile(`(?m)^(require|replace|tool)\b.*`).FindString(r.mods["."]); line != "" {
		bad("go.mod", "the root module says %q", line)
	}
}

// backends calls yield with each package that is a backend: its directory is named after a lock.
func (r *repo) backends(yield func(*pkg)) {
	for _, p := range r.pkgs {
		if strings.HasSuffix(path.Base(p.dir), "lock") && !strings.Contains("/"+p.dir+"/", "/internal/") {
			yield(p)
		}
	}
}

func conformance(r *repo, bad report) {
	r.backends(func(p *pkg) {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil && fn.Name.Name == "TestConformance" {
					return
				}
			}
		}
		bad(p.dir, "the backend has no TestConformance")
	})
}

func assertion(r *repo, bad report) {
	r.backends(func(p *pkg) {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				if decl, ok := d.(*ast.GenDecl); ok && decl.Tok == token.VAR && !f.test && slices.ContainsFunc(decl.Specs, asserts) {
					return
				}
			}
		}
		bad(p.dir, "the backend has no line: var _ driver.Driver = (*T)(nil)")
	})
}

// asserts reports whether s is _ driver.Driver = (*T)(nil).
func asserts(s ast.Spec) bool {
	spec := s.(*ast.ValueSpec)
	if spec.Names[0].Name != "_" || spec.Type == nil || types.ExprString(spec.Type) != "driver.Driver" || len(spec.Values) != 1 {
		return false
	}
	return regexp.MustCompile(`^\(\*\w+\)\(nil\)$`).MatchString(types.ExprString(spec.Values[0]))
}

func pages(r *repo, bad report) {
	r.backends(func(p *pkg) {
		page := "docs/backends/" + path.Base(p.dir) + ".md"
		text, err := fs.ReadFile(r.fsys, page)
		if err != nil {
			bad(page, "the backend has no page: %v", err)
			return
		}
		rest := headings
		for _, m := range regexp.MustCompile(`(?m)^## (.+?)\s*$`).FindAllStringSubmatch(string(text), -1) {
			if len(rest) > 0 && m[1] == rest[0] {
				rest = rest[1:]
			}
		}
		if len(rest) > 0 {
			bad(page, "the heading %q is missing, or stands in another order than %q", "## "+rest[0], headings)
		}
	})
}
