//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing: this system can't have a child killed when we are. What keeps a child from running on
// unguarded is the inherited descriptor, see [Program.Keep].
func dieWithParent(*syscall.SysProcAttr) {}

// onlyDead can't tell here.
func onlyDead(int) bool { return false }
