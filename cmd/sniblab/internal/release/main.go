package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:forbidigo // the only place that ends the program; nothing is deferred here
	}
}

// run releases the checkout in the current folder, which gets the tags, into the folder dist.
func run(ctx context.Context, args []string, log io.Writer) error {
	if len(args) != 1 {
		return errors.New("give the version to release, such as v0.1.0")
	}
	r, cleanup, err := newRelease(".", "dist", args[0], log)
	if err != nil {
		return err
	}
	defer cleanup()
	if err := r.make(ctx); err != nil {
		return err
	}
	r.logf("done: the files are in %s; nothing was pushed. Publish the release with:", r.out)
	r.logf("  git -C %s push --atomic origin %s", r.repo, strings.Join(r.tags(), " "))
	return nil
}

// make makes the release. After an error, the repository and the folder for the files are as
// they were before.
func (r *release) make(ctx context.Context) (err error) {
	if err := r.check(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(r.out)) // it was empty, says check
		}
	}()
	for _, step := range []func(context.Context) error{r.sources, r.buildAll, r.packageAll, r.publishTags} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sources makes what the go command needs of the release, after check.
func (r *release) sources(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.prepare, r.checkAPI, r.fillProxy, r.checkModules} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A release is one release in the making.
type release struct {
	repo    string // the checkout that is released
	out     string // where the files go
	version string // such as v0.1.0
	log     io.Writer

	tmp     string   // removed at the end
	clone   string   // a clone of repo, in tmp, in which the release is made
	root    string   // path of the root module
	modules []module // all modules of the clone, each after those that it requires
	notes   string   // the changelog's section for the version
	built   []binary

	platforms []platform // what buildAll builds for
}

// newRelease returns a release of the checkout in repo, with a temporary folder that
// cleanup removes.
func newRelease(repo, out, version string, log io.Writer) (r *release, cleanup func(), err error) {
	r = &release{version: version, log: log, platforms: platforms}
	if r.repo, err = filepath.Abs(repo); err != nil {
		return nil, nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, nil, err
	}
	if r.tmp, err = os.MkdirTemp("", "snib-release-"); err != nil {
		return nil, nil, err
	}
	r.clone = filepath.Join(r.tmp, "snib")
	cleanup = func() {
		if err := os.RemoveAll(r.tmp); err != nil {
			r.logf("the temporary folder stays: %v", err)
		}
	}
	return r, cleanup, nil
}

func (r *release) logf(format string, args ...any) { fmt.Fprintf(r.log, format+"\n", args...) }
