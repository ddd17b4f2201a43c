//go:build unix

// Package child runs one program under supervision: in a process group of its own, which can be signalled and killed as
// a whole; told of each stop; with the terminal lent to it; and killed with its parent where the system can do that.
package child

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"
)

// A Program is what to run.
type Program struct {
	Path string   // of the executable file, as from [exec.LookPath]
	Args []string // argv, with the name of the program first
	Env  []string

	// Keep is inherited by the program under a number that nothing else uses; nil for none. Standard input, output and
	// error, and whatever else our parent left open for us, are inherited as they are.
	Keep *os.File
}

// An Event is a change of state of the program itself, not of what it started.
type Event struct {
	Status syscall.WaitStatus // Exited, Signaled, Stopped or Continued
	Err    error              // the system won't tell any more: we can't know how it ended
}

// A Child is a running program. Its methods are for one goroutine; Events may be received by another.
type Child struct {
	pid    int
	tty    *terminal // nil without a controlling terminal
	lent   bool      // the terminal was given to the child and not taken back
	events chan Event
}

// Start runs p. The terminal, if we have it and all our standard streams suggest that we are alone on it, is given to
// the program at once; else when it asks.
func Start(p Program) (*Child, error) {
	c := &Child{tty: openTerminal(), events: make(chan Event, 1)}
	c.lent = c.tty != nil && c.tty.ours() && alone()
	if p.Keep != nil {
		keep, err := inheritable(p.Keep)
		if err != nil {
			return nil, err
		}
		defer syscall.Close(keep) //nolint:errcheck // a duplicate that we no longer need
	}
	started := make(chan error, 1)
	go c.live(p, started)
	err := <-started
	// From here on we may use the terminal while the child has it. Not before: the child would inherit that.
	ignoreTerminalStops()
	if err != nil {
		if c.lent { // it went to a process that could not become the program
			c.tty.give(c.tty.home)
		}
		attendTerminalStops() // for another attempt
		return nil, err
	}
	return c, nil
}

// live starts the program and reports its changes of state until it ends.
func (c *Child) live(p Program, started chan<- error) {
	// The signal on the parent's death is tied to the thread that forked, so this thread has to live as long as we do:
	// it is never unlocked, and stays in wait.
	runtime.LockOSThread()
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.lent {
		attr.Foreground, attr.Ctty = true, c.tty.fd
	}
	dieWithParent(attr)
	pid, _, err := syscall.StartProcess(p.Path, p.Args, &syscall.ProcAttr{
		Env: p.Env, Files: []uintptr{0, 1, 2}, Sys: attr,
	})
	c.pid = pid
	started <- err
	if err != nil {
		return
	}
	for {
		e := Event{}
		_, err := syscall.Wait4(pid, &e.Status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		e.Err = err
		c.events <- e
		if err != nil || e.Status.Exited() || e.Status.Signaled() {
			return
		}
	}
}

// inheritable makes a duplicate of f that a child inherits. We start one process only, so nothing else can pick it up.
func inheritable(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(orig uintptr) { fd, dupErr = syscall.Dup(int(orig)) }); err != nil {
		return -1, err
	}
	return fd, dupErr
}

// PID is the process id of the program, and the id of its process group.
func (c *Child) PID() int { return c.pid }

// Events gives each stop, each continuation and, last, the end of the program.
func (c *Child) Events() <-chan Event { return c.events }

// Signal sends s to the program's whole process group.
func (c *Child) Signal(s syscall.Signal) {
	// The only error is that nobody is left, which is told by Events and Alive.
	_ = syscall.Kill(-c.pid, s)
}

// Alive reports whether anything is left of the program's process group, also after the program itself has ended.
// Processes that are dead, and only wait for their parent to take note, don't count.
func (c *Child) Alive() bool {
	return !errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) && !onlyDead(c.pid)
}

// Vanish waits until nothing is left of the process group, at most for limit, and reports whether that came to pass.
// The system tells nobody of the end of a process that isn't its own child, so this has to ask again and again.
func (c *Child) Vanish(limit time.Duration) bool {
	for end := time.Now().Add(limit); c.Alive(); {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
	return true
}

// OnTerminal reports whether we have a controlling terminal.
func (c *Child) OnTerminal() bool { return c.tty != nil }

// Lent reports whether the terminal is lent to the child: what is typed there goes to the child and not to us.
func (c *Child) Lent() bool { return c.lent }

// Lend gives the terminal to the child, if it is ours to give, and reports whether the child has it.
func (c *Child) Lend() bool {
	if c.tty == nil {
		return false
	}
	switch c.tty.front() {
	case c.pid:
		c.lent = true
	case c.tty.home:
		c.lent = c.tty.give(c.pid)
	default:
		c.lent = false
	}
	return c.lent
}

// TakeBack takes the terminal back from the child, if it was lent.
func (c *Child) TakeBack() {
	// Somebody else may have taken it meanwhile, such as a shell that we were started from: then it stays there.
	if c.lent && c.tty.front() == c.pid {
		c.tty.give(c.tty.home)
	}
	c.lent = false
}

// Continue lets a stopped child go on, with the terminal if that is ours to give.
func (c *Child) Continue(withTerminal bool) {
	if withTerminal {
		c.Lend()
	}
	c.Signal(syscall.SIGCONT)
}
