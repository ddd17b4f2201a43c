package livetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// attempts is how many ports are tried.
const attempts = 5

// A Command says how to start a server.
type Command struct {
	Name string // what it is called in messages, such as "redis"
	Path string // of its program, as from [Binary]

	// Args returns the arguments for a server that listens on a port of 127.0.0.1. It may write files of configuration.
	// It is called again, with another port, if the port is taken.
	Args func(port int) []string

	// Port is the one to use, from [FreePort]. The default is any that is free.
	Port int

	// Ready returns nil when the server at addr can be used. The default is to connect.
	Ready func(addr string) error

	Dir  string               // working folder; the default is a temporary one
	Env  []string             // beside our own environment
	Sys  *syscall.SysProcAttr // such as the user to run as
	Quit os.Signal            // asks the server to stop; the default is SIGTERM

	// Grace is how long the server has to stop. The default is 10 s.
	Grace time.Duration
}

// WithEnv returns t as one whose servers are started with env beside our own environment, such as "LD_PRELOAD=clock.so".
func WithEnv(t testing.TB, env ...string) testing.TB { return environ{t, env} }

type environ struct {
	testing.TB
	env []string
}

// A Process is a server that was started. Its methods may be called from any goroutine.
type Process struct {
	t    testing.TB
	c    Command
	addr string
	args []string
	log  string // file with all that it wrote

	mu  sync.Mutex
	run *run // the latest
}

// A run is the time from a start to an end.
type run struct {
	pid   int
	ended chan struct{}
	state *os.ProcessState // when ended is closed; nil if nobody knows how it ended

	told  bool // we made it end; guarded by Process.mu
	hangs bool // guarded by Process.mu
}

func (r *run) running() bool {
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// Start starts a server and returns when it is ready. It is killed when t ends.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	return StartAll(t, c)[0]
}

// StartAll starts several servers at once and returns when all are ready. They are killed when t ends.
func StartAll(t testing.TB, commands ...Command) []*Process {
	t.Helper()
	all, errs := make([]*Process, len(commands)), make([]error, len(commands))
	var starting sync.WaitGroup
	for i, c := range commands {
		starting.Go(func() { all[i], errs[i] = start(t, c) })
	}
	starting.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("start %s: %v", commands[i].Name, err)
		}
	}
	return all
}

func start(t testing.TB, c Command) (*Process, error) {
	dir := t.TempDir() // before the cleanup, which must be over when the folder goes
	if c.Dir == "" {
		c.Dir = dir
	}
	if c.Quit == nil {
		c.Quit = syscall.SIGTERM
	}
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	if e, ok := t.(environ); ok {
		c.Env = append(c.Env, e.env...)
	}
	if c.Ready == nil {
		c.Ready = connects
	}
	p := &Process{t: t, c: c, log: filepath.Join(t.TempDir(), "output")}
	t.Cleanup(p.cleanup)
	for attempt := 1; ; attempt++ {
		port := c.Port
		if port == 0 {
			var err error
			if port, err = freePort(t, nil); err != nil {
				return nil, err
			}
		}
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p.args = c.Args(port)
		err := p.begin()
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || c.Port != 0 || attempt == attempts {
			return nil, err
		}
	}
}

// connects is a [Command.Ready].
func connects(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// begin starts the process and waits until it is ready. Its error matches EADDRINUSE if the process said so.
func (p *Process) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.output())
	r, err := p.launch()
	if err != nil {
		return err
	}
	p.run = r
	err = poll(r.ended, func() error { return p.c.Ready(p.addr) })
	if r.running() && err == nil {
		return nil
	}
	r.told = true
	var why error
	wrote := p.output()[before:]
	switch {
	case r.running():
		why = fmt.Errorf("not ready after %v: %w", Patience, err)
		r.kill()
	case bytes.Contains(bytes.ToLower(wrote), []byte("address already in use")): // whoever wrote it, it is what strerror says
		why = fmt.Errorf("%v at %s: %w", r.state, p.addr, syscall.EADDRINUSE)
	default:
		why = fmt.Errorf("it ended while starting: %v", r.state)
	}
	return fmt.Errorf("%w\noutput:\n%s", why, tail(wrote))
}

// launch starts the process.
func (p *Process) launch() (*run, error) {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(p.c.Path, p.args...)
	cmd.Dir = p.c.Dir
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), p.c.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes(p.c.Sys)
	r := &run{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The signal on the parent's death is tied to the thread that forked, so this thread lives as long as the
		// process does: it is never unlocked, and stays in Wait.
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			r.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // it says the same as the state
		r.state = cmd.ProcessState
		close(r.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

// Addr is where the server listens, as host:port.
func (p *Process) Addr() string { return p.addr }

// Dir is the process's working folder. Servers have their data in it.
func (p *Process) Dir() string { return p.c.Dir }

// PID is the id of the process, or of the last one if it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.pid
}

// MayEnd says that the process may end by itself from now on, as one does that others tell to. Else it fails the test.
func (p *Process) MayEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.told = true
}

// Up reports whether the process runs and does not hang.
func (p *Process) Up() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.running() && !p.run.hangs
}

// Output is all that the server has written, also in earlier runs.
func (p *Process) Output() string { return string(p.output()) }

func (p *Process) output() []byte {
	out, _ := os.ReadFile(p.log) // before the first run there is none
	return out
}

// Hang stops the process, and those that it started, without a trace (SIGSTOP). It keeps its port and its connections,
// accepts what the system accepts for it, and answers nothing until [Process.Resume].
func (p *Process) Hang() {
	p.t.Helper()
	p.signal("hang", hang, true)
}

// Resume lets a process that hangs go on (SIGCONT).
func (p *Process) Resume() {
	p.t.Helper()
	p.signal("resume", resume, false)
}

// signal calls send with the pid of the running process, which hangs afterwards or does not.
func (p *Process) signal(verb string, send func(pid int) error, hangs bool) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.run.running() {
		p.t.Fatalf("%s %s: it does not run", verb, p.c.Name)
	}
	p.run.hangs = hangs
	if err := send(p.run.pid); err != nil {
		p.t.Fatalf("%s %s: %v", verb, p.c.Name, err)
	}
}

// Kill ends the process, and those that it started, without giving it a chance to do anything (SIGKILL), and waits until it
// is gone. A process that does not run stays so.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run.running() {
		p.run.told = true
		p.run.kill()
	}
}

func (r *run) kill() {
	kill(r.pid)
	<-r.ended
}

// Stop asks the process to end, and waits for it. If it does not, it is killed. A process that does not run stays so.
func (p *Process) Stop() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.run.running() {
		return
	}
	p.run.told = true
	if err := quit(p.run.pid, p.c.Quit); err != nil {
		p.t.Logf("stop %s: %v", p.c.Name, err)
	}
	select {
	case <-p.run.ended:
	case <-time.After(p.c.Grace):
		p.t.Logf("stop %s: it is still there after %v, and killed now", p.c.Name, p.c.Grace)
		p.run.kill()
	}
}

// Restart starts the server again, with the same port, arguments and folder, and returns when it is ready. If it still runs,
// it is stopped first.
func (p *Process) Restart() {
	p.t.Helper()
	p.Stop()
	if err := p.begin(); err != nil {
		p.t.Fatalf("restart %s: %v", p.c.Name, err)
	}
}

// cleanup ends the process with the test.
func (p *Process) cleanup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run
	if r == nil {
		return // it was never started
	}
	if !r.running() && !r.told {
		p.t.Errorf("%s (pid %d) ended by itself: %v", p.c.Name, r.pid, r.state)
	}
	if r.running() {
		r.told = true
		r.kill()
	}
	if p.t.Failed() {
		p.t.Logf("output of %s at %s:\n%s", p.c.Name, p.addr, tail(p.output()))
	}
}

// tail is the end of what a server wrote: enough for people.
func tail(out []byte) []byte {
	const enough = 16 << 10
	if len(out) <= enough {
		return out
	}
	out = out[len(out)-enough:]
	if _, whole, ok := bytes.Cut(out, []byte("\n")); ok {
		out = whole
	}
	return append([]byte("…\n"), out...)
}
