//go:build linux

package sqlitelock

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
)

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do)) }

// A job is what a child process does with its own driver: a job of jobtest, or one
// of this package.
type job struct {
	jobtest.Job
	Path string
}

func (j job) do(ctx context.Context) error {
	var opts []Option
	if j.Role == "wrap" {
		opts = append(opts, Inheritable())
	}
	d, err := Open(ctx, j.Path, opts...)
	if err != nil {
		return err
	}
	defer d.Close()
	switch j.Role {
	case "open":
		livetest.Say("open")
		return nil
	case "leave":
		_, err := d.Acquire(ctx, j.Req)
		livetest.Say("left")
		return err
	case "cycle":
		return j.cycle(ctx, d)
	case "wrap":
		return j.wrap(ctx, d)
	case "stop in turn", "stop in transaction":
		return j.stopAtWork(ctx, d)
	case "wait":
		return j.waitMany(ctx, d)
	default:
		return j.Do(ctx, d)
	}
}

// start starts a child process with a role.
func start(t testing.TB, role, path string, req driver.Request) *livetest.Child {
	t.Helper()
	return livetest.StartChild(t, job{jobtest.Job{Role: role, Req: req}, path})
}

// cycle waits until it is told to end, and then acquires and releases the lock many times.
func (j job) cycle(ctx context.Context, d *Driver) error {
	livetest.Say("ready")
	<-ctx.Done()
	for i := range j.Rounds {
		req := j.Req
		req.Owner += strconv.Itoa(i)
		l, err := d.Acquire(context.Background(), req)
		if err != nil {
			return err
		}
		if err := l.Release(context.Background()); err != nil {
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
	child := exec.Command("sleep", "60")
	child.ExtraFiles = []*os.File{d.File(j.Req.Name, j.Req.Owner)}
	if err := child.Start(); err != nil {
		return err
	}
	livetest.Say("child", child.Process.Pid)
	<-ctx.Done()
	return nil
}

// waitMany waits with many requests at once, and reports how much processor time that
// takes per second, measured over two seconds.
func (j job) waitMany(ctx context.Context, d *Driver) error {
	for i := range j.Rounds {
		req := j.Req
		req.Owner += strconv.Itoa(i)
		go d.Acquire(ctx, req)
	}
	for {
		st, err := d.Status(ctx, j.Req.Name)
		if err != nil {
			return err
		}
		if len(st.Waiters) == j.Rounds {
			break
		}
		time.Sleep(10 * time.Millisecond) // poll interval
	}
	before := cpuTime()
	time.Sleep(2 * time.Second) // the measured time
	livetest.Say("cpu", int64(cpuTime()-before)/2)
	<-ctx.Done()
	return nil
}

// cpuTime returns the processor time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
