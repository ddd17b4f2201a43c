//go:build mutants

package mutant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCompiles type-checks each mutant. It includes the mutants that TestMutants leaves out because
// they are slow: otherwise nobody would notice them until their tests run. A file that is not Go,
// such as a script that Go embeds, is not type-checked.
func TestCompiles(t *testing.T) {
	s := newSource()
	c := newCompiler(t, s.root)
	for _, m := range all {
		t.Run(m.name(), func(t *testing.T) {
			file, code, err := s.change(m)
			if err == nil && m.file == "" {
				err = c.check(file, code)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A compiler type-checks packages with one changed file.
type compiler struct {
	fset     *token.FileSet
	packages map[string]listed // by directory
	files    map[string]*ast.File
	importer types.Importer
}

// listed is what "go list" reports about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// newCompiler returns a compiler for the packages of all mutants. It builds the packages that
// they import, because it needs their export data. With -race, "make test" has built them already.
func newCompiler(t *testing.T, root string) *compiler {
	dirs := make(map[string]bool)
	args := []string{"list", "-race", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, m := range all {
		if m.file == "" && !dirs[m.pkg] {
			dirs[m.pkg] = true
			args = append(args, "./"+m.pkg)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	c := &compiler{fset: token.NewFileSet(), packages: make(map[string]listed), files: make(map[string]*ast.File)}
	exports := make(map[string]string)
	for list := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := list.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		c.packages[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

// check type-checks the package of file with code as its contents. It does not check test files and
// files that are for other systems.
func (c *compiler) check(file, code string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	p, ok := c.packages[filepath.Dir(file)]
	if !ok {
		return fmt.Errorf("go list knows no package in %s", filepath.Dir(file))
	}
	changed, err := parser.ParseFile(c.fset, file, code, 0)
	if err != nil {
		return err
	}
	compiled := false
	var files []*ast.File
	for _, name := range p.GoFiles {
		name = filepath.Join(p.Dir, name)
		if name == file {
			compiled = true
			files = append(files, changed)
			continue
		}
		if c.files[name] == nil {
			if c.files[name], err = parser.ParseFile(c.fset, name, nil, 0); err != nil {
				return err
			}
		}
		files = append(files, c.files[name])
	}
	if !compiled {
		return nil
	}
	conf := types.Config{Importer: c.importer}
	_, err = conf.Check(p.ImportPath, c.fset, files, nil)
	return err
}
