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

// maxPortTries is how many ports are tried.
const maxPortTries = 5

// A Command says how to start a server.
type Command struct {
	Name string // its name in messages, such as "redis"
	Path string // of its program, for example from [Binary]

	// Args returns the arguments for a server that listens on a port of 127.0.0.1. It may write
	// configuration files. It is called again with another port if the port is taken.
	Args func(port int) []string

	// Port is the port to use, from [FreePort]. The default is any free port.
	Port int

	// Ready returns nil when the server at addr can be used. The default is to connect.
	Ready func(addr string) error

	Dir  string               // working folder; the default is a temporary one
	Env  []string             // in addition to our own environment
	Sys  *syscall.SysProcAttr // such as the user to run as
	Quit os.Signal            // asks the server to stop; the default is SIGTERM

	// Grace is how long the server has to stop. The default is 10 s.
	Grace time.Duration
}

// WithEnv returns a copy of t whose servers are started with env, such as
// "LD_PRELOAD=clock.so", in addition to our own environment.
func WithEnv(t testing.TB, env ...string) testing.TB { return envTB{t, env} }

type envTB struct {
	testing.TB
	env []string
}

// A Process is a server that was started. It is safe for concurrent use.
type Process struct {
	t    testing.TB
	c    Command
	addr string
	args []string
	log  string // file with all its output

	mu  sync.Mutex
	run *run // the latest run
}

// A run is one process of the server, from its start to its end.
type run struct {
	cmd   *exec.Cmd // its ProcessState is set when ended is closed
	ended chan struct{}

	expectedEnd bool // its end is no failure of the test; guarded by Process.mu
	hung        bool // guarded by Process.mu
}

func (r *run) pid() int { return r.cmd.Process.Pid }

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

// StartAll starts several servers at once and returns when all are ready. They are
// killed when t ends.
func StartAll(t testing.TB, commands ...Command) []*Process {
	t.Helper()
	all, errs := make([]*Process, len(commands)), make([]error, len(commands))
	var starting sync.WaitGroup
	for i, c := range commands {
		starting.Go(func() { all[i], errs[i] = start(t, c) })
	}
	starting.Wait()
	for i, err := range errs {
		Must(t, err, "start %s", commands[i].Name)
	}
	return all
}

func start(t testing.TB, c Command) (*Process, error) {
	// Create the folder before the cleanup is registered, because the cleanup must
	// run before the folder is removed.
	dir := t.TempDir()
	if c.Dir == "" {
		c.Dir = dir
	}
	if c.Quit == nil {
		c.Quit = syscall.SIGTERM
	}
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	if e, ok := t.(envTB); ok {
		c.Env = append(c.Env, e.env...)
	}
	if c.Ready == nil {
		c.Ready = tryConnect
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
		err := p.startReady()
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || c.Port != 0 || attempt == maxPortTries {
			return nil, err
		}
	}
}

// tryConnect is the default of [Command.Ready].
func tryConnect(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// startReady starts the process and waits until it is ready. Its error matches EADDRINUSE if
// the output says that the address is in use.
func (p *Process) startReady() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.output())
	r, err := p.launch()
	if err != nil {
		return err
	}
	p.run = r
	err = poll(startTimeout, r.ended, func() error { return p.c.Ready(p.addr) })
	if r.running() && err == nil {
		return nil
	}
	r.expectedEnd = true
	var why error
	wrote := p.output()[before:]
	switch {
	case r.running():
		why = fmt.Errorf("not ready after %v: %w", startTimeout, err)
		r.kill()
	case bytes.Contains(bytes.ToLower(wrote), []byte("address already in use")):
		// The text of strerror.
		why = fmt.Errorf("%v at %s: %w", r.cmd.ProcessState, p.addr, syscall.EADDRINUSE)
	default:
		why = fmt.Errorf("it ended while starting: %v", r.cmd.ProcessState)
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
	cmd.SysProcAttr = p.c.Sys
	r := &run{cmd: cmd, ended: make(chan struct{})}
	if err := StartTied(cmd, r.ended); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // the state says the same
		close(r.ended)
	}()
	return r, nil
}

// StartTied starts a program in a process group of its own, so that a Ctrl-C for us does not reach
// it first. Until the channel is closed, it is killed when our process ends, however that ends.
func StartTied(cmd *exec.Cmd, until <-chan struct{}) error {
	cmd.SysProcAttr = childAttributes(cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// The parent-death signal comes when the thread ends that forked. It is never unlocked, so it
		// ends with this goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			<-until
		}
	}()
	return <-started
}

// Addr returns the address at which the server listens, as host:port.
func (p *Process) Addr() string { return p.addr }

// Dir returns the process's working folder, which contains the server's data.
func (p *Process) Dir() string { return p.c.Dir }

// PID returns the id of the process, or of the last one if it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.pid()
}

// CPU returns the processor time that the process and its descendants have used.
func (p *Process) CPU() time.Duration { return cpuTime(p.PID()) }

// MayEnd allows the process to end by itself from now on, for example because another server
// tells it to. Without it, such an end fails the test.
func (p *Process) MayEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.expectedEnd = true
}

// Up reports whether the process runs and does not hang.
func (p *Process) Up() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.running() && !p.run.hung
}

// Ready returns nil if the server can be used.
func (p *Process) Ready() error { return p.c.Ready(p.addr) }

// Output returns everything that the server has written, also in earlier runs.
func (p *Process) Output() string { return string(p.output()) }

func (p *Process) output() []byte {
	out, _ := os.ReadFile(p.log) // before the first run there is no file
	return out
}

// Hang stops the process and its descendants without a trace (SIGSTOP). The process
// keeps its port and its connections, and answers nothing until [Process.Resume]. The
// kernel still accepts connections for it.
func (p *Process) Hang() {
	p.t.Helper()
	p.signal("hang", Hang, true)
}

// Resume resumes a process that hangs (SIGCONT).
func (p *Process) Resume() {
	p.t.Helper()
	p.signal("resume", Resume, false)
}

// signal calls send with the pid of the running process, and records whether the
// process then hangs.
func (p *Process) signal(verb string, send func(pid int) error, hung bool) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.run.running() {
		p.t.Fatalf("%s %s: it does not run", verb, p.c.Name)
	}
	p.run.hung = hung
	Must(p.t, send(p.run.pid()), "%s %s", verb, p.c.Name)
}

// Kill kills the process and its descendants (SIGKILL), and waits until the process is gone. It
// does nothing if the process does not run.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run.running() {
		p.run.expectedEnd = true
		p.run.kill()
	}
}

func (r *run) kill() {
	kill(r.pid())
	<-r.ended
}

// Stop asks the process to end and waits for it. It kills a process that does not end within
// [Command].Grace. It does nothing if the process does not run.
func (p *Process) Stop() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.run.running() {
		return
	}
	p.run.expectedEnd = true
	if err := quit(p.run.pid(), p.c.Quit); err != nil {
		p.t.Logf("stop %s: %v", p.c.Name, err)
	}
	select {
	case <-p.run.ended:
	case <-time.After(p.c.Grace):
		p.t.Logf("stop %s: it is still there after %v, and killed now", p.c.Name, p.c.Grace)
		p.run.kill()
	}
}

// Restart starts the server again, with the same port, arguments and folder, and returns when
// it is ready. If it still runs, it is stopped first.
func (p *Process) Restart() {
	p.t.Helper()
	p.Stop()
	Must(p.t, p.startReady(), "restart %s", p.c.Name)
}

// cleanup ends the process with the test.
func (p *Process) cleanup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run
	if r == nil {
		return // it was never started
	}
	if !r.running() && !r.expectedEnd {
		p.t.Errorf("%s (pid %d) ended by itself: %v", p.c.Name, r.pid(), r.cmd.ProcessState)
	}
	if r.running() {
		r.expectedEnd = true
		r.kill()
	}
	if p.t.Failed() {
		p.t.Logf("output of %s at %s:\n%s", p.c.Name, p.addr, tail(p.output()))
	}
}

// tail returns the end of a server's output, in whole lines.
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
