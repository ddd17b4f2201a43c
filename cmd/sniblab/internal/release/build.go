package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A platform is one that the command is built for.
type platform struct {
	os, arch string
	must     bool // the release fails without it; others are named in the notes if they don't build
}

func (p platform) String() string { return p.os + "/" + p.arch }

var platforms = []platform{
	{"linux", "amd64", true},
	{"linux", "arm64", true},
	{"linux", "386", false},
	{"linux", "arm", false},
	{"darwin", "amd64", true},
	{"darwin", "arm64", true},
	{"freebsd", "amd64", false},
	{"windows", "amd64", true},
	{"windows", "arm64", false},
}

// A binary is the command for one platform.
type binary struct {
	platform
	file string
}

// buildFlags are the flags of "go install" for the command. -s and -w leave out the symbols and
// what only debuggers read; stacks of a crash are whole without them. The rest makes two builds
// of a version the same, wherever they are made. Decision 0016 says what the tag is good for.
var buildFlags = []string{"-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w -buildid="}

// buildEnv are variables for "go install", for the same reason.
var buildEnv = []string{"CGO_ENABLED=0", "GOAMD64=v1", "GOARM=7", "GO386=sse2", "GOARM64=v8.0", "GOEXPERIMENT="}

// buildAll builds the command for all platforms, from the modules that users get. So "go
// install" with the same flags and the same Go makes the same file.
func (r *release) buildAll(ctx context.Context) error {
	for _, p := range r.platforms {
		b, err := r.build(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && p.must {
			return err
		}
		if err != nil {
			r.logf("%s is left out, because the command does not build for it: %v", p, err)
			r.skipped = append(r.skipped, p.String())
			continue
		}
		r.logf("built the command for %s", p)
		r.built = append(r.built, b)
	}
	return nil
}

// build builds the command for p.
func (r *release) build(ctx context.Context, p platform) (binary, error) {
	env, err := r.fromProxy(ctx)
	if err != nil {
		return binary{}, err
	}
	path := filepath.Join(r.tmp, "go")
	_, err = call{
		dir: r.tmp,
		// The sums of all modules were checked against cmd/snib/go.sum, and are in the module
		// cache: see checkModules.
		env: append(append(env, buildEnv...), "GOPATH="+path, "GOBIN=", "GOSUMDB=off", "GOOS="+p.os, "GOARCH="+p.arch),
		cmd: append(append([]string{"go", "install"}, buildFlags...), r.root+"/cmd/snib@"+r.version),
	}.output(ctx)
	if err != nil {
		return binary{}, err
	}
	name := "snib"
	if p.os == "windows" {
		name += ".exe"
	}
	// The go command puts what is for its own platform into bin, and the rest into a folder
	// below.
	for _, file := range []string{filepath.Join(path, "bin", p.os+"_"+p.arch, name), filepath.Join(path, "bin", name)} {
		if _, err := os.Stat(file); err == nil {
			return binary{p, file}, nil
		}
	}
	return binary{}, fmt.Errorf("%s: %w: go install reported no error, and there is no file", p, errors.ErrUnsupported)
}

// majorVersion matches the last part of a module's path that names no program, such as v2.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// goTool builds the tool at a path with a version, such as example.com/cmd/x@v1.2.3, and
// returns the program.
func (r *release) goTool(ctx context.Context, tool string) (string, error) {
	bin := filepath.Join(r.tmp, "bin")
	_, err := call{dir: r.tmp, env: []string{"GOWORK=off", "GOFLAGS=", "GOBIN=" + bin}, cmd: []string{"go", "install", tool}}.output(ctx)
	path, _, _ := strings.Cut(tool, "@")
	if name := filepath.Base(path); !majorVersion.MatchString(name) {
		return filepath.Join(bin, name), err
	}
	return filepath.Join(bin, filepath.Base(filepath.Dir(path))), err
}
