//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package fence

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// noFollow makes the system refuse to open a symbolic link.
const noFollow = syscall.O_NOFOLLOW

// flock locks a file until it is closed. It polls, with pauses that grow from 1 to 25 ms, because
// a wait in the system could not be cancelled.
func flock(ctx context.Context, file *os.File) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("flock", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// keepOwner gives file the owner and the group of old, as far as the system allows it, and returns
// the permissions for it: those of old, but a group that is another one counts among others.
func keepOwner(file *os.File, old fs.FileInfo) fs.FileMode {
	mode, was := old.Mode().Perm(), old.Sys().(*syscall.Stat_t)
	if file.Chown(int(was.Uid), int(was.Gid)) != nil && file.Chown(-1, int(was.Gid)) != nil {
		mode = mode&^0o070 | mode&0o007<<3
	}
	return mode
}
