//go:build linux || darwin

package sqlitelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// byteLocks locks bytes of the sidecar file itself, by locks that belong to an open file
// description: they work between two drivers of one process, and processes may inherit them.
type byteLocks struct {
	path     string
	lockFile *os.File // keeps our bytes locked
	// Probes bytes and waits for them; through lockFile, our own locks would not block us.
	probeFile *os.File
}

// canInherit says that a child process can keep the byte of a lease locked.
const canInherit = true

// openByteLocks opens the sidecar file. It follows no symbolic link: a user who can write to
// the folder could point it at another file.
func openByteLocks(path string) (*byteLocks, error) {
	lockFile, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	probeFile, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, errors.Join(err, lockFile.Close())
	}
	return &byteLocks{path, lockFile, probeFile}, nil
}

func (b *byteLocks) stat() (os.FileInfo, error) { return b.lockFile.Stat() }

// lock locks a byte that nobody else locks.
func (b *byteLocks) lock(at int64) error { return setLock(b.lockFile, unix.F_WRLCK, at, false) }

// unlock unlocks a byte that lock has locked.
func (b *byteLocks) unlock(at int64) {
	setLock(b.lockFile, unix.F_UNLCK, at, false) //nolint:errcheck // it fails only if the file is closed, which unlocks as well
}

// lockNewFile locks a byte through a new open file, which a child process may inherit.
func (b *byteLocks) lockNewFile(at int64) (*os.File, error) {
	f, err := os.OpenFile(b.path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	if err := setLock(f, unix.F_WRLCK, at, false); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// unlockFile unlocks and closes a file of lockNewFile. Closing alone would leave the byte
// locked if a child has the file too.
func (b *byteLocks) unlockFile(f *os.File, at int64) {
	setLock(f, unix.F_UNLCK, at, false) //nolint:errcheck // it fails only if the file is closed
	f.Close()                           // nothing was written
}

// locked reports whether anybody keeps the byte locked, this value included.
func (b *byteLocks) locked(at int64) (bool, error) { return b.rangeLocked(at, 1) }

// anyLocked reports whether locked is true for any byte of a driver.
func (b *byteLocks) anyLocked() (bool, error) { return b.rangeLocked(blockSize, 0) }

// rangeLocked is locked for n bytes; n = 0 means to the end of the file.
func (b *byteLocks) rangeLocked(at, n int64) (found bool, err error) {
	err = control(b.probeFile, func(fd uintptr) error {
		// Read locks do not conflict with this one.
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: n}
		err := fcntl(fd, ofdGetLock, &lock)
		found = lock.Type != unix.F_UNLCK
		return err
	})
	return found, err
}

// wait waits until nobody has the byte locked. A read lock is enough for that, and several
// watchers don't wait for one another.
func (b *byteLocks) wait(at int64) error {
	return errors.Join(setLock(b.probeFile, unix.F_RDLCK, at, true), setLock(b.probeFile, unix.F_UNLCK, at, false))
}

// lockWriter waits for the lock of the process that writes.
func (b *byteLocks) lockWriter() error { return setLock(b.lockFile, unix.F_WRLCK, writerByte, true) }

func (b *byteLocks) unlockWriter() { b.unlock(writerByte) }

// close unlocks all bytes, except those of lockNewFile.
func (b *byteLocks) close() error { return errors.Join(b.lockFile.Close(), b.probeFile.Close()) }

// setLock locks or unlocks one byte. Without wait, a conflicting lock is EAGAIN.
func setLock(f *os.File, kind int16, at int64, wait bool) error {
	cmd := ofdSetLock
	if wait {
		cmd = ofdSetLockWait
	}
	return control(f, func(fd uintptr) error {
		return fcntl(fd, cmd, &unix.Flock_t{Type: kind, Start: at, Len: 1})
	})
}

func fcntl(fd uintptr, cmd int, lock *unix.Flock_t) error {
	for {
		if err := unix.FcntlFlock(fd, cmd, lock); err != unix.EINTR {
			return err
		}
	}
}
