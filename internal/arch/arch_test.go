package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
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

// A report reports one violation: its place, and what is wrong.
type report func(where, format string, args ...any)

// A check checks one rule for the whole repository.
type check struct {
	name string
	why  string
	run  func(*repo, report)
}

var checks = []check{
	{"Rule", "every package has a row in rules_test.go, so that its place is decided and not drifted into", checkRules},
	{"Imports", "dependencies point at the contract: a user of one part inherits nothing of the others", checkImports},
	{"Closed", "commands and examples are ends; what is worth sharing moves to a library", checkClosed},
	{"Names", "a package is named after what it provides; these names provide anything", checkNames},
	{"Types", "one word has one meaning, as in docs/glossary.md", checkTypes},
	{"Size", "one person has to be able to own it: docs/budget.md says how large each part may be", checkSize},
	{"Options", "an option that nobody needs is a path that nobody tests: docs/defaults.md says who needs each", checkOptions},
	{"ExportedVariables", "any importer could assign to it; make it a constant or a function", checkExportedVariables},
	{"Variables", "state of a package is shared by strangers in one process; keep it in a value that the caller made", checkState},
	{"Modules", "every module is in go.work and bears the name of its directory, or it is built and tested by nobody", checkModules},
	{"Versions", "a version of its own makes go vet compile all that depends on it once more, and is not what the workspace tests", checkVersions},
	{"RootRequire", "a program that imports the core gets the standard library and nothing else", checkRootRequire},
	{"Conformance", "a backend is what passes the conformance suite", checkConformance},
	{"Assertion", "the compiler says at the type which method is missing, not at a distant call", checkAssertion},
	{"Comments", "long lines of prose are hard to read, and wrap unevenly in a diff", checkComments},
	{"Page", "users compare backends: every page answers the same questions in the same order", checkPages},
}

// at returns the file and line of pos.
func (r *repo) at(pos token.Pos) string {
	p := r.fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// ruleOf returns the row for the package in dir: the one with the longest match.
func ruleOf(dir string) *rule {
	var found *rule
	for i, row := range rules {
		if matches([]string{row.pkg}, dir) && (found == nil || len(row.pkg) > len(found.pkg)) {
			found = &rules[i]
		}
	}
	return found
}

func checkRules(r *repo, bad report) {
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

func checkImports(r *repo, bad report) {
	for _, p := range r.pkgs {
		row := ruleOf(p.dir)
		if row == nil {
			continue // reported by checkRules
		}
		for _, f := range p.files {
			may := append([]string{p.dir, row.pkg}, row.may...)
			if f.test {
				may = append(may, row.test...)
			}
			r.imports(f, func(at token.Pos, dir string, own bool) {
				if !own && isStandard(dir) || matches(may, dir) {
					return
				}
				bad(r.at(at), "%s must not import %s: %s", p.dir, dir, row.why)
			})
		}
	}
}

func checkClosed(r *repo, bad report) {
	for _, p := range r.pkgs {
		home, _, _ := strings.Cut(p.dir, "/")
		for _, f := range p.files {
			r.imports(f, func(at token.Pos, dir string, own bool) {
				top, _, _ := strings.Cut(dir, "/")
				if own && home != top && slices.Contains(closedTrees, top) {
					bad(r.at(at), "%s imports %s", p.dir, dir)
				}
			})
		}
	}
}

func checkNames(r *repo, bad report) {
	for _, p := range r.pkgs {
		for _, f := range p.files {
			name := strings.TrimSuffix(f.ast.Name.Name, "_test")
			if slices.Contains(badNames, name) || slices.Contains(badNames, path.Base(p.dir)) {
				bad(f.path, "package %s in %s", name, p.dir)
			}
		}
	}
}

func checkTypes(r *repo, bad report) {
	for _, p := range r.pkgs {
		for _, f := range p.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				word, known := typeWords[spec.Name.Name]
				if known && !matches(word.in, p.dir) {
					bad(r.at(spec.Pos()), "type %s: call it %s", spec.Name.Name, word.instead)
				}
				return true
			})
		}
	}
}

// variables calls yield with each package variable that is declared
// outside tests, and its declaration.
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

// checkOptions finds exported functions that return an Option and have no row in docs/defaults.md.
// The lab is for nobody's program.
func checkOptions(r *repo, bad report) {
	page, _ := fs.ReadFile(r.fsys, "docs/defaults.md") // without it, none has a row
	for _, p := range r.pkgs {
		for _, file := range p.files {
			if file.test || strings.HasPrefix(p.dir, "cmd/sniblab") {
				continue
			}
			for _, decl := range file.ast.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results.NumFields() != 1 {
					continue
				}
				if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); !ok || result.Name != "Option" {
					continue
				}
				if name := file.ast.Name.Name + "." + f.Name.Name; !bytes.Contains(page, []byte("`"+name+"`")) {
					bad(r.at(f.Pos()), "docs/defaults.md does not say who needs %s", name)
				}
			}
		}
	}
}

func checkExportedVariables(r *repo, bad report) {
	for _, p := range r.pkgs {
		variables(p, func(name *ast.Ident, _ *ast.ValueSpec) {
			if name.IsExported() {
				bad(r.at(name.Pos()), "%s exports the variable %s", p.dir, name.Name)
			}
		})
	}
}

// checkState finds package variables that change. Those are variables that are assigned
// to, in whole or in part, or whose address is taken, also by a call of a method with a
// pointer receiver, anywhere in the package, including its tests. Variables of a type that
// exists to change are found, too.
func checkState(r *repo, bad report) {
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
			if isStateful(spec) {
				flag(name.Pos(), name.Name, "is of a type that exists to change")
			}
		})
		if len(declared) > 0 {
			findChanges(r, p, declared, flag)
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

// isStateful reports whether a variable is a channel, has a type of sync or
// sync/atomic, or contains such a type.
func isStateful(spec *ast.ValueSpec) bool {
	found := false
	visit := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.FuncType:
			return false // its variables are not package variables
		case *ast.ChanType:
			found = true
		case *ast.CallExpr:
			// sync.OnceValue(f) returns a function that is constant to its callers. new(T) and
			// make(T) are as stateful as T.
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
		ast.Inspect(spec.Type, visit)
	}
	for _, v := range spec.Values {
		ast.Inspect(v, visit)
	}
	return found
}

// findChanges finds the places where a variable of the package is changed. The package is
// type-checked without its imports and regardless of build tags. That is enough to distinguish
// its variables from local ones of the same name.
func findChanges(r *repo, p *pkg, declared map[string]bool, flag func(at token.Pos, name, what string)) {
	var files []*ast.File
	for _, f := range p.files {
		if !f.test || !strings.HasSuffix(f.ast.Name.Name, "_test") {
			files = append(files, f.ast)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: noImports{}, FakeImportC: true, Error: func(error) {}}
	scope, _ := conf.Check(p.dir, r.fset, files, info) // errors are expected: nothing is imported

	// root returns the name of the package variable that x is, or is a part of, or "".
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
	flagRoot := func(x ast.Expr, what string) {
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
						flagRoot(x, "is assigned to")
					}
				}
			case *ast.IncDecStmt:
				flagRoot(n.X, "is assigned to")
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					flagRoot(n.Key, "is assigned to")
					flagRoot(n.Value, "is assigned to")
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					flagRoot(n.X, "has its address taken")
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 &&
					(id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
					flagRoot(n.Args[0], "is changed by "+id.Name)
				}
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && isPointerMethod(info.Selections[sel]) {
					flagRoot(sel.X, "has its address taken by "+sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// isPointerMethod reports whether the call of a method takes the address of its receiver.
func isPointerMethod(s *types.Selection) bool {
	if s == nil || s.Kind() != types.MethodVal {
		return false
	}
	_, isPointer := types.Unalias(s.Recv()).(*types.Pointer)
	_, wantsPointer := types.Unalias(s.Obj().(*types.Func).Signature().Recv().Type()).(*types.Pointer)
	return wantsPointer && !isPointer
}

// noImports is an importer that finds no package.
type noImports struct{}

func (noImports) Import(p string) (*types.Package, error) { return nil, fs.ErrNotExist }

func checkModules(r *repo, bad report) {
	used := r.workspaceDirs()
	for dir, mod := range r.mods {
		want := module + "/" + dir
		if dir == "." {
			want = module
		}
		if got := firstMatch(regexp.MustCompile(`(?m)^module\s+(\S+)`), mod); got != want {
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

func firstMatch(re *regexp.Regexp, text string) string {
	m := re.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return m[1]
}

// checkVersions checks that the modules require the same version of a module.
func checkVersions(r *repo, bad report) {
	require := regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) (v\S+)`)
	first := make(map[string]string) // the version of a module that was found first
	for _, dir := range slices.Sorted(maps.Keys(r.mods)) {
		for _, m := range require.FindAllStringSubmatch(r.mods[dir], -1) {
			name, version := m[1], m[2]
			if first[name] == "" {
				first[name] = version
			}
			if version != first[name] {
				bad(path.Join(dir, "go.mod"), "it requires %s %s, and another module %s", name, version, first[name])
			}
		}
	}
}

func checkRootRequire(r *repo, bad report) {
	if line := regexp.MustCompile(`(?m)^(require|replace|tool)\b.*`).FindString(r.mods["."]); line != "" {
		bad("go.mod", "the root module says %q", line)
	}
}

// backends calls yield with each package that is a backend: the name of
// its directory ends in "lock".
func (r *repo) backends(yield func(*pkg)) {
	for _, p := range r.pkgs {
		if strings.HasSuffix(path.Base(p.dir), "lock") && !strings.Contains("/"+p.dir+"/", "/internal/") {
			yield(p)
		}
	}
}

func checkConformance(r *repo, bad report) {
	r.backends(func(p *pkg) {
		home := p
		if dir := conformanceIn[p.dir]; dir != "" {
			if i := slices.IndexFunc(r.pkgs, func(other *pkg) bool { return other.dir == dir }); i >= 0 {
				home = r.pkgs[i]
			}
		}
		for _, f := range home.files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil && fn.Name.Name == "TestConformance" {
					return
				}
			}
		}
		bad(p.dir, "the backend has no TestConformance")
	})
}

func checkAssertion(r *repo, bad report) {
	r.backends(func(p *pkg) {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				if decl, ok := d.(*ast.GenDecl); ok && decl.Tok == token.VAR && !f.test &&
					slices.ContainsFunc(decl.Specs, isAssertion) {
					return
				}
			}
		}
		bad(p.dir, "the backend has no line: var _ driver.Driver = (*T)(nil)")
	})
}

// isAssertion reports whether s is _ driver.Driver = (*T)(nil).
func isAssertion(s ast.Spec) bool {
	spec := s.(*ast.ValueSpec)
	if spec.Names[0].Name != "_" || spec.Type == nil || types.ExprString(spec.Type) != "driver.Driver" || len(spec.Values) != 1 {
		return false
	}
	return regexp.MustCompile(`^\(\*\w+\)\(nil\)$`).MatchString(types.ExprString(spec.Values[0]))
}

// maxComment is the maximum length of a comment line, in characters. A tab counts as one.
const maxComment = 100

// checkComments checks lines that consist of a comment. It skips directives and the indented code
// in doc comments, which can't be wrapped.
func checkComments(r *repo, bad report) {
	for _, p := range r.pkgs {
		for _, f := range p.files {
			for _, group := range f.ast.Comments {
				for _, c := range group.List {
					checkComment(r, f, c, bad)
				}
			}
		}
	}
}

func checkComment(r *repo, f *file, c *ast.Comment, bad report) {
	start := r.fset.Position(c.Pos())
	indent := f.src[start.Offset-start.Column+1 : start.Offset]
	prose, found := strings.CutPrefix(c.Text, "// ")
	if !found || len(bytes.TrimSpace(indent)) > 0 {
		return
	}
	if n := len(indent) + utf8.RuneCountInString("// "+prose); n > maxComment {
		bad(r.at(c.Pos()), "the comment has %d characters in this line, want %d at most", n, maxComment)
	}
}

func checkPages(r *repo, bad report) {
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
