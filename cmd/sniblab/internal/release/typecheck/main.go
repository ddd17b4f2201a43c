// Command typecheck checks the types of all packages of the workspace, and of their tests, on other
// platforms: typecheck GOOS/GOARCH... It compiles nothing. "go vet" would compile all packages that
// ours import for each platform, which takes minutes on a machine with an empty cache.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(1) //nolint:forbidigo // the only place that ends the program; nothing is deferred here
	}
}

func run(platforms []string) error {
	if len(platforms) == 0 {
		return errors.New("no platform was named: give GOOS/GOARCH, such as linux/arm64")
	}
	for _, platform := range platforms {
		n, err := check(platform)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		fmt.Fprintf(os.Stdout, "%s: %d packages\n", platform, n)
	}
	return nil
}

// check type-checks the workspace in the current folder, and returns the number of its packages.
func check(platform string) (int, error) {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return 0, errors.New("a platform is GOOS/GOARCH, such as linux/arm64")
	}
	root, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	all, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax | packages.NeedModule,
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		Tests: true,
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			return parse(fset, name, src, strings.HasPrefix(name, root+string(os.PathSeparator)))
		},
	}, "work")
	if err != nil {
		return 0, err
	}
	var found []error
	seen := make(map[string]bool) // a package is loaded once more with its tests
	ours := 0
	for _, p := range all {
		if strings.HasSuffix(p.PkgPath, ".test") {
			continue // the main package of tests, which the go command writes
		}
		ours++
		for _, e := range p.Errors {
			if !seen[e.Error()] {
				seen[e.Error()] = true
				found = append(found, e)
			}
		}
	}
	if ours == 0 {
		return 0, errors.New("there are no packages")
	}
	return ours, errors.Join(found...)
}

// parse parses a file. Of the packages of others, only the declarations count: the types in their
// functions are their authors' business. That they lack bodies is an error that nobody reads.
func parse(fset *token.FileSet, name string, src []byte, ours bool) (*ast.File, error) {
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if ours || file == nil {
		return file, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
	return file, err
}
