//go:build linux || darwin || windows

package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do)) }

// A job is what a child process does with its own driver.
type job struct {
	Role string
	Req  driver.Request
	Path string

	Rounds int    // how often the role cycle acquires the lock, with the number of the round in its id
	File   string // that the lock guards, or ""
}

func (j job) do(ctx context.Context) error {
	d, err := Open(ctx, j.Path)
	if err != nil {
		return err
	}
	defer d.Close()
	switch j.Role {
	case "cycle":
		return j.cycle(ctx, d)
	case "wrap":
		return j.wrap(ctx, d)
	case "hold":
		return livetest.Hold(ctx, d, j.Req)
	default:
		return j.stopAtWork(ctx, d)
	}
}

// start starts a child process with a role.
func start(t testing.TB, role, path string, req driver.Request) *livetest.Child {
	t.Helper()
	return livetest.StartChild(t, job{Role: role, Req: req, Path: path})
}

// cycle waits until it is told to end, and then acquires and releases the lock many times.
func (j job) cycle(ctx context.Context, d *Driver) error {
	livetest.Say("ready")
	<-ctx.Done()
	for i := range j.Rounds {
		req := j.Req
		req.ID += strconv.Itoa(i)
		l, err := d.Acquire(context.Background(), req)
		if err != nil {
			return err
		}
		if j.File != "" {
			err = appendToken(j.File, l.Grant().Token)
		}
		if err := errors.Join(err, l.Release(context.Background())); err != nil {
			return err
		}
	}
	livetest.Say("done")
	return nil
}

// wrap acquires a lease, starts a child that inherits its file, and reports the
// child's process id.
func (j job) wrap(ctx context.Context, d *Driver) error {
	if _, err := d.Acquire(ctx, j.Req); err != nil {
		return err
	}
	file, err := d.Inherit(ctx, j.Req.Name, j.Req.ID)
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "60")
	child.ExtraFiles = []*os.File{file}
	if err := child.Start(); err != nil {
		return err
	}
	livetest.Say("child", child.Process.Pid)
	<-ctx.Done()
	return nil
}

// open opens a driver, which is closed when the test ends.
func open(t testing.TB, path string, opts ...Option) *Driver {
	t.Helper()
	d, err := Open(t.Context(), path, opts...)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "locks.db") }

// appendToken appends a token to a file. If two processes do so at the same time, one gets lost.
func appendToken(file string, token uint64) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, fmt.Appendf(old, "%d\n", token), 0o600)
}
