//go:build unix

package child

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the one that controls this process.
type terminal struct {
	fd   int
	home int // our own process group
}

// openTerminal returns nil if no terminal controls us.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, home: unix.Getpgrp()}
}

// front is the process group that the terminal listens to, or 0 if it can't be known.
func (t *terminal) front() int {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgrp
}

// ours reports whether the terminal listens to our own process group.
func (t *terminal) ours() bool { return t.front() == t.home }

// give makes the terminal listen to a process group of our session.
func (t *terminal) give(pgrp int) bool {
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgrp) == nil
}

// ignoreTerminalStops lets us write to the terminal, and take it back, while it listens to another process group.
func ignoreTerminalStops() { signal.Ignore(syscall.SIGTTOU) }

// attendTerminalStops undoes ignoreTerminalStops.
func attendTerminalStops() { signal.Reset(syscall.SIGTTOU) }

// alone reports whether the terminal may go to the child before it asks for it. In a pipeline it may not: the other
// programs in it, such as a pager, need the terminal as well. Nor when somebody has put us into the background the way
// shells without job control do it, with SIGINT ignored.
func alone() bool {
	if signal.Ignored(syscall.SIGINT) || !IsTerminal(syscall.Stdin) {
		return false
	}
	return !isPipe(syscall.Stdout) && !isPipe(syscall.Stderr)
}

func isPipe(fd int) bool {
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil {
		return false
	}
	kind := st.Mode & syscall.S_IFMT
	return kind == syscall.S_IFIFO || kind == syscall.S_IFSOCK
}

// IsTerminal reports whether the descriptor fd is a terminal. It takes a number and not an [os.File], whose Fd method
// may change the mode of what we share with others.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	return err == nil
}

// Width is the number of columns of the terminal fd, or 0 if fd is none or does not know.
func Width(fd int) int {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
