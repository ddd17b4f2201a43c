package child

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptsOrphans reports whether a process whose parent dies becomes our child: we are the first
// process of a container, or a parent made us the "child subreaper" before it became this program.
func adoptsOrphans() bool {
	var subreaper int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&subreaper)), 0, 0, 0)
	return os.Getpid() == 1 || err == nil && subreaper != 0
}
