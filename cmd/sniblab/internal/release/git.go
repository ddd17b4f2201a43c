package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A call is a program to run.
type call struct {
	dir string   // the working directory
	env []string // in addition to the environment of this program
	cmd []string
}

// output runs the program and returns its standard output, without white space at the ends. An
// error has the program, and what it wrote to standard error.
func (c call) output(ctx context.Context) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.cmd[0], c.cmd[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), c.env...)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.cmd, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// git runs git in dir.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	return call{dir: dir, cmd: append([]string{"git"}, args...)}.output(ctx)
}

// gitDated runs git in the clone with the date of HEAD as the date of what it makes, so that
// the same commit always gives the same release.
func (r *release) gitDated(ctx context.Context, args ...string) error {
	date, err := git(ctx, r.clone, "show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	_, err = call{dir: r.clone, cmd: append([]string{"git"}, args...),
		env: []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}}.output(ctx)
	return err
}
