package child

import (
	"errors"

	"golang.org/x/sys/unix"
)

// waiter returns a function that returns when the process pid has ended.
func waiter(pid int) (func(), error) {
	if pid <= 0 {
		return nil, unix.ESRCH
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.EINVAL): // a thread
		return nil, unix.ESRCH
	case errors.Is(err, unix.ESRCH):
		return nil, err
	case err != nil: // an old kernel, or a sandbox that does not know the call
		return pollWaiter(pid)
	}
	return func() {
		defer unix.Close(fd) //nolint:errcheck // nothing was written
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}, nil
}

// Gone reports whether the process pid certainly does not exist, or has ended and only waits for
// its parent to collect it, which nobody may do in a container.
func Gone(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0
}
