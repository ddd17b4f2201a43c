package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the root module. The path of every other package of the repository is
// this path, a slash, and the package's directory.
const module = "github.com/sniblock/snib"

// A repo is the input of the checks: the parsed Go files of all modules below one
// root, regardless of build tags.
type repo struct {
	fsys fs.FS
	fset *token.FileSet
	pkgs []*pkg            // sorted by directory
	mods map[string]string // directory → contents of its go.mod
	work string            // contents of go.work
}

// A pkg is a directory with Go files, including its external tests.
type pkg struct {
	dir   string // relative to the root, "." for the root itself
	files []*file
}

type file struct {
	path string
	test bool // its name ends in _test.go
	ast  *ast.File
	src  []byte
}

// load parses everything below the root of fsys except hidden directories and testdata.
func load(fsys fs.FS) (*repo, error) {
	r := &repo{fsys: fsys, fset: token.NewFileSet(), mods: map[string]string{}}
	byDir := map[string]*pkg{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		case base == "go.mod" || name == "go.work":
			text, err := fs.ReadFile(fsys, name)
			if base == "go.mod" {
				r.mods[path.Dir(name)] = string(text)
			} else {
				r.work = string(text)
			}
			return err
		case path.Ext(name) != ".go" || base[0] == '.' || base[0] == '_':
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(r.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
			r.pkgs = append(r.pkgs, byDir[dir])
		}
		byDir[dir].files = append(byDir[dir].files, &file{name, strings.HasSuffix(name, "_test.go"), tree, src})
		return nil
	})
	slices.SortFunc(r.pkgs, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return r, err
}

// workspaceDirs returns the directories that go.work uses.
func (r *repo) workspaceDirs() []string {
	var dirs []string
	for _, m := range regexp.MustCompile(`(?m)^(?:use)?[\t ]+(\.[^\s]*)`).FindAllStringSubmatch(r.work, -1) {
		dirs = append(dirs, path.Clean(m[1]))
	}
	return dirs
}

// imports calls yield with each import of f: its position and its path. For a package of this
// repository, own is true, and the path is the package's directory.
func (r *repo) imports(f *file, yield func(at token.Pos, dir string, own bool)) {
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // unreachable: the parser has accepted the path
		}
		if p == module {
			yield(spec.Pos(), ".", true)
		} else if dir, ok := strings.CutPrefix(p, module+"/"); ok {
			yield(spec.Pos(), dir, true)
		} else {
			yield(spec.Pos(), p, false)
		}
	}
}

// isStandard reports whether p is the path of a package of the
// standard library. Cgo's "C" is not.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && p != "C"
}

// matches reports whether p matches one of the patterns. The pattern "x/..."
// matches x and everything below it.
func matches(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, ok := strings.CutSuffix(pattern, "/...")
		return p == pattern || ok && (p == tree || strings.HasPrefix(p, tree+"/"))
	})
}
