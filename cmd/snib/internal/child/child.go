// Package child runs one program under supervision. The program and what it starts can be
// signalled and killed as a whole: they are what is below us on Linux, a process group on other
// Unix, and a job object on Windows.
// The parent learns of each stop, can lend the terminal to the program, and takes the program with
// it when it dies, where the system can do that.
package child

import (
	"os"
	"syscall"
	"time"
)

// A Program describes what to run.
type Program struct {
	Path string   // of the executable file, as from [exec.LookPath]
	Args []string // argv, beginning with the program's name
	Env  []string

	// Each file of Keep is inherited by the program under a descriptor that nothing else
	// uses. Standard input, output and error are inherited as they are, and on Unix also
	// whatever else our parent left open for us. Windows refuses a Keep that is not empty.
	Keep []*os.File
}

// An Event is a change of state of the program itself, not of the processes that it started.
type Event struct {
	// Exited, Signaled, Stopped or Continued. On Windows, it is always Exited.
	Status syscall.WaitStatus
	Err    error // the system failed to report; how the program ended is unknown
}

// Events returns a channel with each stop, each continuation and, last, the end of the program.
func (c *Child) Events() <-chan Event { return c.events }

// Vanish waits until no process of the program lives, for at most limit, and reports whether none
// does. See Alive for what it knows of.
func (c *Child) Vanish(limit time.Duration) bool {
	for end := time.Now().Add(limit); c.Alive(); {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
	return true
}

// Kill kills all processes of the program, also those that start while it does, and reports
// whether none is left within limit.
func (c *Child) Kill(limit time.Duration) bool {
	for end := time.Now().Add(limit); ; {
		c.Signal(syscall.SIGKILL)
		if c.Vanish(10 * time.Millisecond) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
