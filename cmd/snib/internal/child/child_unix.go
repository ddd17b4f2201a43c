//go:build unix

package child

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Child is a running program. One goroutine may call its methods; another one
// may receive from Events.
type Child struct {
	pid    int
	tty    *terminal // nil without a controlling terminal
	lent   bool      // the terminal was given to the child and not taken back
	events chan Event

	before    []int         // what was below us before the program
	childless chan struct{} // closed when we have no child any more
	changes   atomic.Uint64 // of the state of any child, such as its end
}

// A process is one that the program started, itself or through others.
type process struct{ pid, parent, group, session int }

// Start runs p. If we have the terminal, and all our standard streams suggest that no
// other program uses it, Start lends it to the program at once. Otherwise Lend does that
// when the program asks for it.
func Start(p Program) (*Child, error) {
	c := &Child{tty: openTerminal(), events: make(chan Event, 1), before: adopt(), childless: make(chan struct{})}
	c.lent = c.tty != nil && c.tty.isForeground() && mayLendAtStart()
	for _, file := range p.Keep {
		keep, err := dupForChild(file)
		if err != nil {
			return nil, err
		}
		defer syscall.Close(keep) //nolint:errcheck // a duplicate that we no longer need
	}
	started := make(chan error, 1)
	go c.run(p, started)
	err := <-started
	// From here on we may use the terminal while the child has it. Not before: the child would
	// inherit the ignored signal.
	ignoreTerminalStops()
	if err != nil {
		if c.lent { // the process that has it could not become the program
			c.tty.setForeground(c.tty.ownGroup)
		}
		restoreTerminalStops() // for another try
		return nil, err
	}
	return c, nil
}

// run starts the program and reports its changes of state until it ends. It collects what the
// program leaves behind, until nothing is left.
func (c *Child) run(p Program, started chan<- error) {
	// The system sends the signal for the parent's death when the thread that forked ends. So
	// this goroutine stays locked to its thread, which waits for the program until it ends.
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
	for ended := false; ; {
		e := Event{}
		changed, err := syscall.Wait4(waitTarget(pid), &e.Status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		c.changes.Add(1)
		switch {
		case errors.Is(err, syscall.EINTR) || err == nil && changed != pid:
		case ended:
			close(c.childless)
			return
		default:
			e.Err = err
			ended = err != nil || e.Status.Exited() || e.Status.Signaled()
			c.events <- e
		}
	}
}

// dupForChild duplicates f so that a child inherits the duplicate. We start only one process,
// so no other can inherit it.
func dupForChild(f *os.File) (int, error) {
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

// Signal sends s to the program's whole process group. On Linux, a signal that asks programs to
// end also reaches the other groups of its session, such as those of timeout(1), and KILL reaches
// whatever the program started.
func (c *Child) Signal(s syscall.Signal) {
	// The only error is that no process is left. Events and Alive report that.
	_ = syscall.Kill(-c.pid, s)
	switch s {
	case syscall.SIGKILL:
		c.signalOutside(s, true, true)
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		c.signalOutside(s, true, false)
	}
}

// Terminate sends TERM to what the program started in sessions of its own, such as daemons, and
// agents that it needed until its end. Signal has asked the rest.
func (c *Child) Terminate() { c.signalOutside(syscall.SIGTERM, false, true) }

// signalOutside sends s to what has left the program's group: what is still in its session, and
// what has left that, too.
func (c *Child) signalOutside(s syscall.Signal, inSession, beyond bool) {
	session, _ := unix.Getsid(0)
	for _, p := range c.outside() {
		if same := p.session == session; same && inSession || !same && beyond {
			_ = syscall.Kill(p.pid, s) // it has ended, or it is not ours to signal: Alive tells
		}
	}
}

// OnTerminal reports whether we have a controlling terminal.
func (c *Child) OnTerminal() bool { return c.tty != nil }

// Lent reports whether the terminal is lent to the child: input typed there goes to
// the child and not to us.
func (c *Child) Lent() bool { return c.lent }

// Lend lends the terminal to the child, if it is ours to lend, and reports
// whether the child has it.
func (c *Child) Lend() bool {
	if c.tty == nil {
		return false
	}
	switch c.tty.foregroundGroup() {
	case c.pid:
		c.lent = true
	case c.tty.ownGroup:
		c.lent = c.tty.setForeground(c.pid)
	default:
		c.lent = false
	}
	return c.lent
}

// TakeBack takes the terminal back from the child, if it was lent.
func (c *Child) TakeBack() {
	// Somebody else may have taken it meanwhile, such as the shell that started
	// us: then it stays there.
	if c.lent && c.tty.foregroundGroup() == c.pid {
		c.tty.setForeground(c.tty.ownGroup)
	}
	c.lent = false
}

// Continue continues a stopped child, with the terminal if that is ours to lend.
func (c *Child) Continue(withTerminal bool) {
	if withTerminal {
		c.Lend()
	}
	c.Signal(syscall.SIGCONT)
}
