package sqlitelock

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/sniblock/snib/driver"
)

// Offsets in the sidecar file, which contains only locks and no data.
const (
	writerByte = 0 // locked by the process that writes to the database
	// A driver takes blocks of this many bytes; block n starts at n*blockSize, n > 0.
	blockSize = 1 << 20
)

// A sidecar is the file beside the database whose locked bytes show which leases and
// waiters are alive. Each lease and each waiter has a byte of its own, never used twice,
// which its process keeps locked. The kernel unlocks the bytes of a process that dies, and
// wakes the processes that wait for one.
//
// A driver takes bytes one after the other. The kernel keeps locks in a list and merges
// neighbours of one owner into a single entry, so 100,000 leases cost it only a few entries.
type sidecar struct {
	path     string
	lockFile *os.File // keeps our bytes locked
	// Probes bytes and waits for them; through lockFile, our own locks would not block us.
	probeFile *os.File
	info      os.FileInfo

	mu      sync.Mutex
	held    map[int64]bool // bytes that lockFile has locked
	watches map[int64]*byteWatch
}

// A byteWatch is a byte that several waiters wait for together.
type byteWatch struct {
	hints   map[chan struct{}]bool
	blocked bool // a goroutine waits in the kernel for the byte of another driver
}

// openSidecar opens the file. It follows no symbolic link: a user who can write to the
// folder could point it at another file.
func openSidecar(path string) (*sidecar, error) {
	lockFile, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	probeFile, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, errors.Join(err, lockFile.Close())
	}
	s := &sidecar{path: path, lockFile: lockFile, probeFile: probeFile, held: make(map[int64]bool), watches: make(map[int64]*byteWatch)}
	if s.info, err = lockFile.Stat(); err == nil {
		err = s.checkIntact()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// checkIntact returns an error if the file was replaced or deleted: other processes
// then lock the bytes of another file.
func (s *sidecar) checkIntact() error { return checkSameFile(s.info, s.path) }

// checkSameFile returns an error if path no longer leads to the original file. That file must
// still be open, because the inode numbers of deleted files are reused.
func checkSameFile(original os.FileInfo, path string) error {
	now, err := os.Lstat(path)
	if err == nil && os.SameFile(original, now) {
		return nil
	}
	return fmt.Errorf("%s was replaced or deleted while in use; stop all processes that use it, then start them again",
		path)
}

// lock locks one of our bytes.
func (s *sidecar) lock(at int64) error {
	if err := setLock(s.lockFile, lockWrite, at, false); err != nil {
		return fmt.Errorf("lock byte %d of %s: %w", at, s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[at] = true
	return nil
}

// unlock unlocks one of our bytes and wakes its watchers. It does nothing if the
// byte is not locked.
func (s *sidecar) unlock(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held[at] {
		return
	}
	delete(s.held, at)
	setLock(s.lockFile, lockNone, at, false) //nolint:errcheck // it fails only if the file is closed, which unlocks as well
	if w := s.watches[at]; w != nil && !w.blocked {
		s.wake(at)
	}
}

// lockNewFile locks a byte through a new open file, which a child process may inherit.
func (s *sidecar) lockNewFile(at int64) (*os.File, error) {
	f, err := os.OpenFile(s.path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	err = s.checkIntact()
	if err == nil {
		err = setLock(f, lockWrite, at, false)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockedHere reports whether lock has locked the byte.
func (s *sidecar) lockedHere(at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[at]
}

// locked reports whether any driver keeps the byte locked. If the kernel can't tell, it
// reports true: then the lease ends at its TTL.
func (s *sidecar) locked(at int64) bool {
	return s.lockedHere(at) || s.lockedElsewhere(at, 1)
}

// lockedElsewhere reports whether another driver has any of the n bytes from at on
// locked; n = 0 means to the end of the file.
func (s *sidecar) lockedElsewhere(at, n int64) bool {
	found := true
	control(s.probeFile, func(fd uintptr) error { //nolint:errcheck // found says it
		taken, err := fcntlWriteLocked(fd, at, n)
		found = taken || err != nil
		return err
	})
	return found
}

// lockedBy returns those of the given processes that have the byte locked.
func lockedBy(all []lockingProcess, at int64) []driver.Holder {
	var found []driver.Holder
	for _, p := range all {
		if p.first <= at && at <= p.last && !slices.Contains(found, p.holder) {
			found = append(found, p.holder)
		}
	}
	return found
}

// lockWriter waits until no other process writes to the database. SQLite's own lock polls and
// may starve a process; the kernel's queue does neither.
func (s *sidecar) lockWriter() error { return setLock(s.lockFile, lockWrite, writerByte, true) }

func (s *sidecar) unlockWriter() {
	setLock(s.lockFile, lockNone, writerByte, false) //nolint:errcheck // it fails only if the file is closed
}

// watch sends to hint once the byte is not locked, at once if it is not locked now.
// Each hint is a channel with room for one.
//
// For the byte of another driver, a goroutine, and with it a thread, waits in the kernel. It
// can't be interrupted, so it stays until the byte is unlocked, also when nobody watches any
// more; but there is at most one per byte.
func (s *sidecar) watch(at int64, hint chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[at]
	if w == nil {
		w = &byteWatch{hints: make(map[chan struct{}]bool), blocked: !s.held[at]}
		s.watches[at] = w
		if w.blocked {
			go s.awaitUnlock(at)
		}
	}
	w.hints[hint] = true
}

// unwatch removes hint from the watchers of the byte.
func (s *sidecar) unwatch(at int64, hint chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[at]
	if w == nil {
		return
	}
	delete(w.hints, hint)
	if len(w.hints) == 0 && !w.blocked {
		delete(s.watches, at)
	}
}

// awaitUnlock waits in the kernel until nobody has the byte locked, and then wakes
// its watchers.
func (s *sidecar) awaitUnlock(at int64) {
	// A read lock is enough to wait for a write lock, and several watchers don't
	// wait for one another.
	err := control(s.probeFile, func(fd uintptr) error {
		return errors.Join(fcntlLock(fd, lockRead, at, 1, true), fcntlLock(fd, lockNone, at, 1, false))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.watches, at) // waking would make the waiters spin; they have timers
		return
	}
	s.wake(at)
}

// wake sends to all watchers of the byte. s.mu must be locked.
func (s *sidecar) wake(at int64) {
	for hint := range s.watches[at].hints {
		select {
		case hint <- struct{}{}:
		default: // it has one already
		}
	}
	delete(s.watches, at)
}

// close unlocks all bytes.
func (s *sidecar) close() error { return errors.Join(s.lockFile.Close(), s.probeFile.Close()) }

// setLock locks or unlocks one byte.
func setLock(f *os.File, kind int16, at int64, wait bool) error {
	return control(f, func(fd uintptr) error { return fcntlLock(fd, kind, at, 1, wait) })
}

// control calls fn with the descriptor of f, which stays open until fn returns,
// also if f is closed in the meantime.
func control(f *os.File, fn func(fd uintptr) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(fd) }); err != nil {
		return err
	}
	return inner
}
