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
	*byteLocks
	info os.FileInfo

	mu      sync.Mutex
	held    map[int64]*os.File // bytes that we have locked, with the file of lockNewFile, or nil
	watches map[int64]*byteWatch
	blocked int // goroutines that wait in the kernel
}

// maxBlocked bounds the threads that wait in the kernel: Go ends a program that has 10,000. Who
// watches one byte more has a timer.
const maxBlocked = 1000

// A byteWatch is a byte that several waiters wait for together.
type byteWatch struct {
	hints   map[chan struct{}]bool
	blocked bool // a goroutine waits in the kernel for the byte of another driver
}

// openSidecar opens the file.
func openSidecar(path string) (*sidecar, error) {
	b, err := openByteLocks(path)
	if err != nil {
		return nil, err
	}
	s := &sidecar{byteLocks: b, held: make(map[int64]*os.File), watches: make(map[int64]*byteWatch)}
	if s.info, err = b.stat(); err == nil {
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
	now, err := lstat(path)
	if err == nil && os.SameFile(original, now) {
		return nil
	}
	return fmt.Errorf("%s was replaced or deleted while in use; stop all processes that use it, then start them again",
		path)
}

// lock locks one of our bytes.
func (s *sidecar) lock(at int64) error {
	if err := s.byteLocks.lock(at); err != nil {
		return fmt.Errorf("lock byte %d of %s: %w", at, s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[at] = nil
	return nil
}

// unlock unlocks one of our bytes and wakes its watchers. It reports false if we have not locked
// the byte.
func (s *sidecar) unlock(at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.held[at]
	if !ok {
		return false
	}
	delete(s.held, at)
	if f != nil {
		s.byteLocks.unlockFile(f, at)
	} else {
		s.byteLocks.unlock(at)
	}
	if w := s.watches[at]; w != nil && !w.blocked {
		s.wake(at)
	}
	return true
}

// lockNewFile locks a byte through a new open file, which a child process may inherit.
func (s *sidecar) lockNewFile(at int64) (*os.File, error) {
	f, err := s.byteLocks.lockNewFile(at)
	if err != nil {
		return nil, err
	}
	if err := s.checkIntact(); err != nil {
		s.byteLocks.unlockFile(f, at)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[at] = f
	return f, nil
}

// file returns the file of lockNewFile, or nil.
func (s *sidecar) file(at int64) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[at]
}

// lockedHere reports whether we have locked the byte.
func (s *sidecar) lockedHere(at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.held[at]
	return ok
}

// locked reports whether any driver keeps the byte locked. If the system can't tell, it
// reports true: then the lease ends at its TTL.
func (s *sidecar) locked(at int64) bool {
	if s.lockedHere(at) {
		return true
	}
	taken, err := s.byteLocks.locked(at)
	return taken || err != nil
}

// inUse reports whether any driver keeps any byte locked. If the system can't tell, it
// reports true.
func (s *sidecar) inUse() bool {
	taken, err := s.byteLocks.anyLocked()
	return taken || err != nil
}

// A lockingProcess is a process that has bytes of the sidecar write-locked.
type lockingProcess struct {
	first, last int64
	holder      driver.Holder
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
		_, here := s.held[at]
		w = &byteWatch{hints: make(map[chan struct{}]bool), blocked: !here && s.blocked < maxBlocked}
		s.watches[at] = w
		if w.blocked {
			s.blocked++
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
	err := s.byteLocks.wait(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked--
	if err != nil {
		delete(s.watches, at) // waking would make the waiters spin; they have timers
		return
	}
	s.wake(at)
}

// wake sends to all watchers of the byte. s.mu must be locked.
func (s *sidecar) wake(at int64) {
	for hint := range s.watches[at].hints {
		notify(hint)
	}
	delete(s.watches, at)
}

// close unlocks all bytes, except those that other processes have inherited.
func (s *sidecar) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.held {
		f.Close() // nothing was written; nil is an error
	}
	return s.byteLocks.close()
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
