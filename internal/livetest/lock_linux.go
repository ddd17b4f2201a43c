package livetest

import (
	"os"
	"path/filepath"
	"syscall"
)

// LockFile waits until no other process has the file locked, and locks it. The lock
// ends with the process at the latest.
func LockFile(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}
