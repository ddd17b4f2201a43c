//go:build linux

package sqlitelock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// jobEnv makes the test binary do a job instead of running tests, so that tests have real processes to kill and stop.
const jobEnv = "SNIB_SQLITE_TEST_JOB"

func TestMain(m *testing.M) {
	text := os.Getenv(jobEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.do()
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// A job is what a child process does. It ends when its standard input is closed, at the latest.
type job struct {
	Role   string
	Path   string
	Req    driver.Request
	Rounds int
	Log    string
}

func (j job) do() error {
	d, err := Open(j.Path)
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	switch j.Role {
	case "open":
		fmt.Println("open")
		return nil
	case "hold":
		return j.hold(ctx, d)
	case "leave":
		_, err := d.Acquire(ctx, j.Req)
		fmt.Println("left")
		return err
	case "contend":
		return j.contend(ctx, d)
	case "cycle":
		return j.cycle(ctx, d)
	case "wrap":
		return j.wrap(ctx, d)
	case "wait":
		return j.waitMany(ctx, d)
	default:
		return errors.New("no such role: " + j.Role)
	}
}

// hold takes the lease, says so, and renews it until the process is told to end.
func (j job) hold(ctx context.Context, d *Driver) error {
	l, err := d.Acquire(ctx, j.Req)
	if err != nil {
		return err
	}
	fmt.Println("held", l.Grant().Token)
	tick := time.NewTicker(j.Req.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.Renew(ctx, []driver.Lease{l})[0].Err; err != nil {
				fmt.Println("lost", err)
				fmt.Println("late", l.Release(context.Background()))
				return nil
			}
		case <-ctx.Done():
			return l.Release(context.Background())
		}
	}
}

// contend takes and releases the lock many times; each time it appends its token to a file that only the lock guards.
func (j job) contend(ctx context.Context, d *Driver) error {
	for i := range j.Rounds {
		req := j.Req
		req.Owner += strconv.Itoa(i)
		l, err := d.Acquire(ctx, req)
		if err != nil {
			return err
		}
		if err := appendToken(j.Log, l.Grant().Token); err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
	}
	fmt.Println("done")
	return nil
}

// appendToken rewrites the whole file, which loses lines if another does so at the same time.
func appendToken(path string, token uint64) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(old, "%d\n", token), 0o600)
}

// cycle takes and releases the lock many times, from when its standard input is closed.
func (j job) cycle(ctx context.Context, d *Driver) error {
	fmt.Println("ready")
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
	fmt.Println("done")
	return nil
}

// wrap takes a lease and starts a child that inherits its file, and says the child's process id.
func (j job) wrap(ctx context.Context, d *Driver) error {
	l, err := d.Acquire(ctx, j.Req)
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "60")
	child.ExtraFiles = []*os.File{l.Grant().File}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println("child", child.Process.Pid)
	<-ctx.Done()
	return nil
}

// waitMany waits with many requests at once, and then says how much processor time that took in two seconds.
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
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	before := cpuTime()
	time.Sleep(2 * time.Second) // the span that is measured
	fmt.Println("cpu", int64(cpuTime()-before)/2)
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

// A proc is a child process that does a job.
type proc struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
	gone  atomic.Bool
}

// start starts a child process. It is gone when the test ends.
func start(t testing.TB, j job) *proc {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &proc{t: t, cmd: exec.Command(exe), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), jobEnv+"="+string(text),
		"GORACE=atexit_sleep_ms=0") // or each process takes a second to end under the race detector
	p.cmd.Stderr = os.Stderr
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.stdin = in
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(p.kill)
	return p
}

// expect returns what follows the word in the next line of output, which must begin with it.
func (p *proc) expect(word string) string {
	p.t.Helper()
	select {
	case line := <-p.lines:
		got, rest, _ := strings.Cut(line, " ")
		if got != word {
			p.t.Fatalf("the process says %q, want %q", line, word)
		}
		return rest
	case <-time.After(20 * time.Second):
		p.t.Fatalf("the process does not say %q", word)
		return ""
	}
}

func (p *proc) number(word string) int64 {
	p.t.Helper()
	n, err := strconv.ParseInt(p.expect(word), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// holding returns p when it holds its lease.
func (p *proc) holding() *proc {
	p.t.Helper()
	p.expect("held")
	return p
}

func (p *proc) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// kill kills the process, without a chance for it to clean up, and returns when it is gone.
func (p *proc) kill() {
	if p.gone.Swap(true) {
		return
	}
	p.cmd.Process.Kill()
	p.stdin.Close()
	p.cmd.Wait()
}

// finish waits for the process to end by itself.
func (p *proc) finish() {
	p.t.Helper()
	p.gone.Store(true)
	for range p.lines { // Wait closes the pipe
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// open opens a driver, which is closed when the test ends.
func open(t testing.TB, path string, opts ...Option) *Driver {
	t.Helper()
	d, err := Open(path, opts...)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
