//go:build unix

package child

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// A Child is a running program. One goroutine may call its methods; another one
// may receive from Events.
type Child struct {
	pid    int
	tty    *terminal // nil without a controlling terminal
	lent   bool      // the terminal was given to the child and not taken back
	events chan Event
}

// Start runs p. If we have the terminal, and all our standard streams suggest that no
// other program uses it, Start lends it to the program at once. Otherwise Lend does that
// when the program asks for it.
func Start(p Program) (*Child, error) {
	c := &Child{tty: openTerminal(), events: make(chan Event, 1)}
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

// run starts the program and reports its changes of state until it ends.
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
	target := pid
	if adoptsOrphans() {
		target = -1 // whoever adopts the orphans must collect them, or they stay as zombies
	}
	for {
		e := Event{}
		changed, err := syscall.Wait4(target, &e.Status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if errors.Is(err, syscall.EINTR) || err == nil && changed != pid {
			continue
		}
		e.Err = err
		c.events <- e
		if err != nil || e.Status.Exited() || e.Status.Signaled() {
			return
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

// Signal sends s to the program's whole process group.
func (c *Child) Signal(s syscall.Signal) {
	// The only error is that no process is left. Events and Alive report that.
	_ = syscall.Kill(-c.pid, s)
}

// Alive reports whether a process of the program's group lives, even after the program itself
// has ended. Zombies, which only wait for their parent to collect them, don't count.
func (c *Child) Alive() bool {
	return !errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) && !allDead(c.pid)
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
