//go:build freebsd || ((linux || darwin) && snib_portable)

package sqlitelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// byteLocks is for systems without locks on bytes that belong to an open file. A byte of the
// sidecar is a file of its own beside it, which is locked as a whole by flock(2) and exists
// while it is locked. The promises are the same; each byte costs an open file, and each lock
// and unlock the creation and deletion of a file.
//
// The build tag snib_portable makes Linux and macOS use this form, too, for tests. All
// processes that share a database must use the same form.
type byteLocks struct {
	path   string
	writer *os.File // the sidecar; locked by the process that writes

	mu    sync.Mutex
	files map[int64]*os.File // of lock
}

// canInherit says that a child process can keep the byte of a lease locked.
const canInherit = true

// openByteLocks opens the sidecar file. It follows no symbolic link: a user who can write to
// the folder could point it at another file.
func openByteLocks(path string) (*byteLocks, error) {
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	return &byteLocks{path: path, writer: f, files: make(map[int64]*os.File)}, nil
}

func (b *byteLocks) stat() (os.FileInfo, error) { return b.writer.Stat() }

// file returns the path of the file that stands for a byte.
func (b *byteLocks) file(at int64) string { return b.path + "-" + strconv.FormatInt(at, 10) }

// lock locks a byte that nobody else locks.
func (b *byteLocks) lock(at int64) error {
	f, err := b.lockNewFile(at)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[at] = f
	return nil
}

// unlock unlocks a byte that lock has locked.
func (b *byteLocks) unlock(at int64) {
	b.mu.Lock()
	f := b.files[at]
	delete(b.files, at)
	b.mu.Unlock()
	if f != nil {
		b.unlockFile(f, at)
	}
}

// lockNewFile locks a byte through a new open file, which a child process may inherit.
func (b *byteLocks) lockNewFile(at int64) (*os.File, error) {
	side, err := b.stat()
	if err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(b.file(at), os.O_RDWR|os.O_CREATE|noFollow, 0o600)
		if err != nil {
			return nil, err
		}
		// It waits only for somebody who looks at the file at this moment.
		if err := errors.Join(f.Chmod(side.Mode().Perm()), flock(f, unix.LOCK_EX)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// Whoever found the file before it was locked may have deleted it.
		if ours, err := sameFile(f, b.file(at)); ours || err != nil {
			return f, err
		}
		f.Close() // nothing was written
	}
}

// sameFile reports whether path leads to the open file.
func sameFile(f *os.File, path string) (bool, error) {
	open, err := f.Stat()
	if err != nil {
		return false, errors.Join(err, f.Close())
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(open, now), nil
}

// unlockFile unlocks, deletes and closes a file of lockNewFile. Closing alone would leave the
// byte locked if a child has the file too.
func (b *byteLocks) unlockFile(f *os.File, at int64) {
	os.Remove(b.file(at))  //nolint:errcheck // without a lock it means the same
	flock(f, unix.LOCK_UN) //nolint:errcheck // it fails only if the file is closed
	f.Close()              // nothing was written
}

// locked reports whether anybody keeps the byte locked, this value included. It deletes the
// file of a process that died.
func (b *byteLocks) locked(at int64) (bool, error) {
	locked, err := b.fileLocked(b.file(at))
	if !locked && err == nil {
		os.Remove(b.file(at)) //nolint:errcheck // without a lock it means nothing
	}
	return locked, err
}

// fileLocked reports whether anybody has locked a file.
func (b *byteLocks) fileLocked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return true, nil
	}
	return false, err
}

// anyLocked reports whether locked is true for any byte of a driver.
func (b *byteLocks) anyLocked() (bool, error) {
	names, err := filepath.Glob(escapeGlob(b.path) + "-*")
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if locked, err := b.fileLocked(name); locked || err != nil {
			return locked, err
		}
	}
	return false, nil
}

// escapeGlob returns a pattern that matches path only.
func escapeGlob(path string) string {
	var pattern []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			pattern = append(pattern, '\\')
		}
		pattern = append(pattern, path[i])
	}
	return string(pattern)
}

// wait waits until nobody has the byte locked. A shared lock is enough for that, and several
// watchers don't wait for one another.
func (b *byteLocks) wait(at int64) error {
	f, err := os.OpenFile(b.file(at), os.O_RDWR|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return flock(f, unix.LOCK_SH)
}

// lockWriter waits for the lock of the process that writes.
func (b *byteLocks) lockWriter() error { return flock(b.writer, unix.LOCK_EX) }

func (b *byteLocks) unlockWriter() {
	flock(b.writer, unix.LOCK_UN) //nolint:errcheck // it fails only if the file is closed
}

// close unlocks all bytes, except those of lockNewFile.
func (b *byteLocks) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at, f := range b.files {
		b.unlockFile(f, at)
	}
	clear(b.files)
	return b.writer.Close()
}

// flock locks or unlocks a file as a whole.
func flock(f *os.File, how int) error {
	return control(f, func(fd uintptr) error {
		for {
			if err := unix.Flock(int(fd), how); err != unix.EINTR {
				return err
			}
		}
	})
}
