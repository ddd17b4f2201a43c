package sqlitelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// byteLocks locks bytes of the sidecar file by LockFileEx. A lock belongs to the handle through
// which it was set, and to its process. While a call waits for a lock, no other call on the same
// handle goes on, so whatever waits has a handle of its own.
type byteLocks struct {
	path                        string
	lockFile, probeFile, writer *os.File
}

// canInherit says that a child process can't keep the byte of a lease locked: Windows unlocks
// it when the process that locked it ends.
const canInherit = false

// openByteLocks opens the sidecar file.
func openByteLocks(path string) (_ *byteLocks, err error) {
	b := &byteLocks{path: path}
	for _, f := range []**os.File{&b.lockFile, &b.probeFile, &b.writer} {
		if *f, err = os.OpenFile(path, os.O_RDWR|noFollow, 0); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

func (b *byteLocks) stat() (os.FileInfo, error) { return b.lockFile.Stat() }

// lock locks a byte that nobody else locks. It waits only for somebody who looks at the byte
// at this moment.
func (b *byteLocks) lock(at int64) error {
	return lockFileEx(b.lockFile, windows.LOCKFILE_EXCLUSIVE_LOCK, at, 1)
}

// unlock unlocks a byte that lock has locked.
func (b *byteLocks) unlock(at int64) {
	unlockFileEx(b.lockFile, at, 1) //nolint:errcheck // it fails only if the file is closed, which unlocks as well
}

func (b *byteLocks) lockNewFile(int64) (*os.File, error) { return nil, errors.ErrUnsupported }
func (b *byteLocks) unlockFile(*os.File, int64)          {}

// locked reports whether anybody keeps the byte locked, this value included.
func (b *byteLocks) locked(at int64) (bool, error) { return b.rangeLocked(at, 1) }

// anyLocked reports whether locked is true for any byte of a driver.
func (b *byteLocks) anyLocked() (bool, error) { return b.rangeLocked(blockSize, 1<<62) }

// rangeLocked is locked for n bytes. It takes a shared lock for a moment: Windows has no other
// way to ask.
func (b *byteLocks) rangeLocked(at, n int64) (bool, error) {
	err := lockFileEx(b.probeFile, windows.LOCKFILE_FAIL_IMMEDIATELY, at, n)
	switch {
	case err == nil:
		return false, unlockFileEx(b.probeFile, at, n)
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return true, nil
	}
	return false, err
}

// wait waits until nobody has the byte locked.
func (b *byteLocks) wait(at int64) error {
	f, err := os.OpenFile(b.path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return err
	}
	defer f.Close() // it unlocks the byte
	return lockFileEx(f, 0, at, 1)
}

// lockWriter waits for the lock of the process that writes.
func (b *byteLocks) lockWriter() error {
	return lockFileEx(b.writer, windows.LOCKFILE_EXCLUSIVE_LOCK, writerByte, 1)
}

func (b *byteLocks) unlockWriter() {
	unlockFileEx(b.writer, writerByte, 1) //nolint:errcheck // it fails only if the file is closed
}

// close unlocks all bytes.
func (b *byteLocks) close() error {
	var errs []error
	for _, f := range []*os.File{b.lockFile, b.probeFile, b.writer} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func lockFileEx(f *os.File, flags uint32, at, n int64) error {
	return control(f, func(fd uintptr) error {
		return windows.LockFileEx(windows.Handle(fd), flags, 0, uint32(n), uint32(n>>32), overlapped(at))
	})
}

func unlockFileEx(f *os.File, at, n int64) error {
	return control(f, func(fd uintptr) error {
		return windows.UnlockFileEx(windows.Handle(fd), 0, uint32(n), uint32(n>>32), overlapped(at))
	})
}

func overlapped(at int64) *windows.Overlapped {
	return &windows.Overlapped{Offset: uint32(at), OffsetHigh: uint32(at >> 32)}
}
