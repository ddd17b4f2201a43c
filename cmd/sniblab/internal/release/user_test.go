package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A user uses a release from outside: with an empty module cache, through the release's proxy.
type user struct {
	r   *release
	dir string
	env []string
}

func newUser(t *testing.T, r *release) user {
	t.Helper()
	env, err := r.fromProxy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Sums of other people's modules are not in question here, and their database may be out of
	// reach.
	return user{r, dir, append(env, "GOMODCACHE="+filepath.Join(dir, "mod"), "GOBIN="+filepath.Join(dir, "bin"), "GOSUMDB=off")}
}

func (u user) run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := call{dir: dir, env: u.env, cmd: args}.output(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// get requires the module at path in a module of its own, and runs a program that links the
// packages.
func (u user) get(t *testing.T, path string, packages ...string) {
	t.Helper()
	dir := filepath.Join(u.dir, "use", path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var main bytes.Buffer
	main.WriteString("package main\n\nimport (\n\t\"os\"\n\n")
	for _, p := range packages {
		fmt.Fprintf(&main, "\t_ %q\n", p)
	}
	main.WriteString(")\n\nfunc main() { os.Stdout.WriteString(\"linked\") }\n")
	u.run(t, dir, "go", "mod", "init", "example.com/user")
	u.run(t, dir, "go", "get", path+"@"+u.r.version)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), main.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	u.run(t, dir, "go", "mod", "tidy")
	if got := u.run(t, dir, "go", "run", "-trimpath", "."); got != "linked" {
		t.Errorf("%s: a program with its packages printed %q", path, got)
	}
}

// install installs the command, and returns what it prints.
func (u user) install(t *testing.T, args ...string) string {
	t.Helper()
	u.env = append(u.env, buildEnv...)
	u.run(t, u.dir, append(append([]string{"go", "install"}, buildFlags...), u.r.root+"/cmd/snib@"+u.r.version)...)
	return u.run(t, u.dir, append([]string{filepath.Join(u.dir, "bin", "snib")}, args...)...)
}

// libraries returns the modules that others can import packages of, with these packages.
func (u user) libraries(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, m := range u.r.modules {
		if !m.public() {
			continue
		}
		list := u.run(t, filepath.Join(u.r.clone, m.dir), "go", "list", "-f", "{{if and (ne .Name \"main\") .GoFiles}}{{.ImportPath}}{{end}}", "./...")
		found[m.path] = slices.DeleteFunc(strings.Fields(list), func(path string) bool {
			return slices.Contains(strings.Split(path, "/"), "internal")
		})
	}
	return found
}
