//go:build unix && !linux

package child

import (
	"errors"
	"syscall"
)

// dieWithParent does nothing: this system can't kill a child when its parent dies. The
// inherited descriptor keeps a child from running on unguarded, see [Program.Keep].
func dieWithParent(*syscall.SysProcAttr) {}

// adopt does nothing: we know only the process group of the program on this system.
func adopt() []int { return nil }

// waitTarget is what our one waiter waits for: the program.
func waitTarget(program int) int { return program }

// Alive reports whether a process of the program's group lives, also after the program has ended.
func (c *Child) Alive() bool { return !errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) }

// outside returns nothing: see adopt.
func (c *Child) outside() []process { return nil }

// descendants returns nothing: see adopt.
func descendants(int, []int) []process { return nil }
