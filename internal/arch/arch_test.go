package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
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
	{"Types", "one word has one meaning, as in docs/glossary.md", checkTypes},
	{"Size", "one person has to be able to own it: docs/budget.md says how large each part may be", checkSize},
	{"Options", "an option that nobody needs is a path that nobody tests: docs/defaults.md says who needs each", checkOptions},
	{"ExportedVariables", "any importer could assign to it; make it a constant or a function", checkExportedVariables},
	{"Variables", "state of a package is shared by strangers in one process; keep it in a value that the caller made", checkState},
	{"Modules", "every module is in go.work and bears the name of its directory, or it is built and tested by nobody", checkModules},
	{"Versions", "a version of its own makes go vet compile all that depends on it once more, and is not what the workspace tests", checkVersions},
	{"RootRequire", "a program that imports the core gets the standard library and nothing else", checkRootRequire},
	{"Conformance", "a backend is what passes the conformance suite", checkConformance},
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

// checkState finds package variables of a type that exists to change.
func checkState(r *repo, bad report) {
	for _, p := range r.pkgs {
		variables(p, func(name *ast.Ident, spec *ast.ValueSpec) {
			if isStateful(spec) {
				bad(r.at(name.Pos()), "the package variable %s is of a type that exists to change", name.Name)
			}
		})
	}
}

// isStateful reports whether a variable is a channel, has a type of sync or sync/atomic, or
// contains such a type.
func isStateful(spec *ast.ValueSpec) bool {
	found := false
	visit := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.FuncType:
			return false // its variables are not package variables
		case *ast.CallExpr: // sync.OnceValue(f) returns a function that is constant to its callers
			if id, ok := n.Fun.(*ast.Ident); !ok || id.Name != "new" && id.Name != "make" {
				return false
			}
		case *ast.ChanType:
			found = true
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && (id.Name == "sync" || id.Name == "atomic") {
				found = true
			}
		}
		return !found
	}
	ast.Inspect(spec, visit)
	return found
}

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
