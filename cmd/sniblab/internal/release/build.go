package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A platform is one that the command is built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var platforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"linux", "386"},
	{"linux", "arm"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"freebsd", "amd64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
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
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
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
	return binary{}, errors.New("go install reported no error, and there is no file")
}

// goRun runs the program at a path with a version, such as example.com/cmd/x@v1.2.3, in a folder.
func (r *release) goRun(ctx context.Context, dir, tool string, args ...string) (string, error) {
	return call{dir: dir, env: []string{"GOWORK=off", "GOFLAGS="}, cmd: append([]string{"go", "run", tool}, args...)}.output(ctx)
}
