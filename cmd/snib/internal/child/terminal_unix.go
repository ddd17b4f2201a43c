//go:build unix

package child

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the controlling terminal of this process.
type terminal struct {
	fd       int
	ownGroup int // our own process group
}

// openTerminal returns our controlling terminal, or nil if there is none.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, ownGroup: unix.Getpgrp()}
}

// foregroundGroup returns the foreground process group of the terminal, or 0 if it is unknown.
func (t *terminal) foregroundGroup() int {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgrp
}

// isForeground reports whether our own process group is in the foreground.
func (t *terminal) isForeground() bool { return t.foregroundGroup() == t.ownGroup }

// setForeground puts a process group of our session into the foreground, and
// reports whether that worked.
func (t *terminal) setForeground(pgrp int) bool {
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgrp) == nil
}

// ignoreTerminalStops lets us write to the terminal, and take it back, while another process
// group is in the foreground.
func ignoreTerminalStops() { signal.Ignore(syscall.SIGTTOU) }

// restoreTerminalStops undoes ignoreTerminalStops.
func restoreTerminalStops() { signal.Reset(syscall.SIGTTOU) }

// mayLendAtStart reports whether the child may have the terminal before it asks for it.
// It may not in a pipeline, where other programs, such as a pager, need the terminal too.
// It may not either if somebody put us into the background as shells without job control
// do, with SIGINT ignored.
func mayLendAtStart() bool {
	if signal.Ignored(syscall.SIGINT) || !term.IsTerminal(syscall.Stdin) {
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
