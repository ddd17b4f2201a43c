//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing: this system can't kill a child when its parent dies. The
// inherited descriptor keeps a child from running on unguarded, see [Program.Keep].
func dieWithParent(*syscall.SysProcAttr) {}

// allDead returns false: this system does not tell.
func allDead(int) bool { return false }
