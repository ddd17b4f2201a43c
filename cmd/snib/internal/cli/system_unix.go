//go:build unix

package cli

import (
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// otherSignals are the signals that snib run passes on, in addition to those that ask it to end.
var otherSignals = []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}

// stopSignals are those with which the keyboard stops a program.
var stopSignals = []syscall.Signal{syscall.SIGTSTP}

// isStop reports whether s is a signal with which the keyboard stops a program.
func isStop(s syscall.Signal) bool { return s == syscall.SIGTSTP }

// isContinue reports whether s continues a stopped program.
func isContinue(s syscall.Signal) bool { return s == syscall.SIGCONT }

// wantsTerminal reports whether s stops a program because it used a terminal that it doesn't have.
func wantsTerminal(s syscall.Signal) bool { return s == syscall.SIGTTIN || s == syscall.SIGTTOU }

// reloadSignals are those that make snib serve read its files again.
var reloadSignals = []os.Signal{syscall.SIGHUP}

// findsInCurrentFolder says that a command without a path may be one of the current folder: "." is
// in PATH on purpose.
const findsInCurrentFolder = true

// notExecutable follows the name of a file that can't be run.
const notExecutable = "is not executable; chmod +x it?"

// askToEnd asks a process that we started to end.
func askToEnd(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// umask returns the permissions that new files of this process don't get.
func umask() fs.FileMode {
	mask := syscall.Umask(0) // there is no way to only read it
	syscall.Umask(mask)
	return fs.FileMode(mask)
}

// raiseSIGINT ends this process by SIGINT if e says so. It returns if it can't.
func (e exitStatus) raiseSIGINT() {
	if !e.bySIGINT {
		return
	}
	target := syscall.Getpid()
	if e.toGroup {
		target = 0
	}
	signal.Reset(syscall.SIGINT)
	if syscall.Kill(target, syscall.SIGINT) == nil {
		time.Sleep(time.Second) // the signal is pending, and any thread may receive it
	}
}
