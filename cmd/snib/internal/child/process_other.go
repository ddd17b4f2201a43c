//go:build unix && !linux

package child

import (
	"errors"
	"syscall"
)

// waiter returns a function that returns when the process pid has ended.
func waiter(pid int) (func(), error) { return pollWaiter(pid) }

// Gone reports whether the process pid certainly does not exist.
func Gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
