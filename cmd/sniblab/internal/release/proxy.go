package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	xmodule "golang.org/x/mod/module"
)

// fillProxy makes a module proxy in the folder "proxy" of the release. The go command makes its
// files from the tags of the clone, so they are what users will get. A sum that differs from
// the one in the go.sum files is an error.
func (r *release) fillProxy(ctx context.Context) error {
	cache := filepath.Join(r.tmp, "direct")
	for _, m := range r.modules {
		if !m.public() {
			continue
		}
		out, err := call{
			dir: r.tmp,
			env: append(r.fromClone(), "GOMODCACHE="+cache),
			cmd: []string{"go", "mod", "download", "-modcacherw", "-json", m.path + "@" + r.version},
		}.output(ctx)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		var got struct{ Info, GoMod, Zip, Sum string }
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			return err
		}
		want, err := r.sum(m, "HEAD")
		if err != nil {
			return err
		}
		if line := m.path + " " + r.version + " " + got.Sum; line != want[0] {
			return fmt.Errorf("the go command has another sum for %s than the release: %s, want %s", m.path, line, want[0])
		}
		if err := r.addToProxy(m, got.Info, got.GoMod, got.Zip); err != nil {
			return err
		}
	}
	r.logf("checked the sums of %d modules", len(r.tags()))
	return nil
}

// addToProxy copies the files of m to the proxy.
func (r *release) addToProxy(m module, files ...string) error {
	escaped, err := xmodule.EscapePath(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.out, "proxy", escaped, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, r.version+filepath.Ext(name)), data, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "list"), []byte(r.version+"\n"), 0o644)
}

// fromClone returns variables with which the go command finds the repository's modules in the
// clone, and not where they are published. They are in no sum database yet.
func (r *release) fromClone() []string {
	n, _ := strconv.Atoi(os.Getenv("GIT_CONFIG_COUNT")) // unset: 0
	return append(outside(),
		"GOPRIVATE="+r.root,
		"GIT_ALLOW_PROTOCOL=file",
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", n+1),
		fmt.Sprintf("GIT_CONFIG_KEY_%d=url.file://%s.insteadOf", n, filepath.ToSlash(r.clone)),
		fmt.Sprintf("GIT_CONFIG_VALUE_%d=https://%s", n, r.root),
	)
}

// outside returns variables for a go command that must not see the workspace or the user's flags.
func outside() []string { return []string{"GOWORK=off", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local"} }

// fromProxy returns variables with which the go command takes the repository's modules from the
// proxy that fillProxy made, and others from the user's module cache, or else from where the
// user has them from. The cache for modules is the release's own: the user's must not remember
// a version that was never published.
func (r *release) fromProxy(ctx context.Context) ([]string, error) {
	out, err := call{dir: r.tmp, cmd: []string{"go", "env", "GOMODCACHE", "GOPROXY"}}.output(ctx)
	if err != nil {
		return nil, err
	}
	cache, upstream, _ := strings.Cut(out, "\n")
	return append(outside(),
		"GOMODCACHE="+filepath.Join(r.tmp, "mod"),
		fmt.Sprintf("GOPROXY=file://%s,file://%s/cache/download,%s",
			filepath.ToSlash(filepath.Join(r.out, "proxy")), filepath.ToSlash(cache), upstream),
		"GONOSUMDB="+r.root,
	), nil
}

// checkModules checks each module alone, without the workspace: its go.mod and go.sum must name
// all that its packages and tests need. So the sums of all other people's modules are checked,
// too.
func (r *release) checkModules(ctx context.Context) error {
	env, err := r.fromProxy(ctx)
	if err != nil {
		return err
	}
	for _, m := range r.modules {
		if !m.public() {
			continue
		}
		_, err := call{dir: filepath.Join(r.clone, m.dir), env: env,
			cmd: []string{"go", "list", "-mod=readonly", "-deps", "-test", "./..."}}.output(ctx)
		if err != nil {
			return fmt.Errorf("module %s is not complete: %w", m.path, err)
		}
	}
	r.logf("checked that each module names all that it needs")
	return nil
}
