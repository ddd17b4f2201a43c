//go:build unix

package child

import (
	"errors"
	"syscall"
)

// Gone reports whether the process pid certainly does not exist.
func Gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
