package cli

import (
	"io/fs"
	"os"
	"syscall"
)

// Windows has no signals. Go reports Ctrl-C and Ctrl-Break as SIGINT, and as SIGTERM that the
// console is closed, that the user logs off, or that the system shuts down.

// otherSignals are the signals that snib run passes on, in addition to those that ask it to end.
var otherSignals []syscall.Signal

// stopSignals is empty: no key stops a program.
var stopSignals []syscall.Signal

// isStop returns false, because no signal stops a program.
func isStop(syscall.Signal) bool { return false }

// isContinue returns false, because no program is ever stopped.
func isContinue(syscall.Signal) bool { return false }

// wantsTerminal returns false, because each program on a console may read from it.
func wantsTerminal(syscall.Signal) bool { return false }

// reloadSignals is empty: Windows has no signal that means to read files again.
var reloadSignals []os.Signal

// findsInCurrentFolder says that commands without a path are not looked up in the current folder.
// Windows would look there first, so that whoever may write there could replace any command.
const findsInCurrentFolder = false

// notExecutable follows the name of a file that can't be run.
const notExecutable = "is not executable; rename it, so that it ends as PATHEXT says?"

// askToEnd does nothing: a process that is on our console, and in our process group, has got the
// same Ctrl-C as we have.
func askToEnd(*os.Process) error { return nil }

// umask returns 0: Windows has other permissions.
func umask() fs.FileMode { return 0 }

// raiseSIGINT does nothing: the shell that started us has got Ctrl-C, too.
func (exitStatus) raiseSIGINT() {}
