package sqlitelock

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/sniblock/snib/driver"
)

// Offsets in the sidecar file. Only locks stand there, no data.
const (
	turnByte  = 0       // locked by who writes to the database
	blockSize = 1 << 20 // a driver takes bytes in blocks of this many; block n starts at n*blockSize, n > 0
)

// A sidecar is the file beside the database whose locked bytes say who lives: each lease and each waiter has a byte of
// its own, never used twice, which its process keeps locked. The kernel unlocks the bytes of a process that dies, and
// wakes those who wait for one.
//
// A driver takes bytes one after the other: the kernel keeps its locks in a list, in which neighbours of one owner are
// a single entry, so that 100,000 leases cost it a few entries and not as many.
type sidecar struct {
	path string
	hold *os.File // keeps our bytes locked
	look *os.File // looks at bytes and waits for them: through hold, our own locks would not be in our way
	file os.FileInfo

	mu      sync.Mutex
	held    map[int64]bool // bytes that hold has locked
	watches map[int64]*watch
}

// A watch is what several waiters wait for together.
type watch struct {
	hints   map[chan struct{}]bool
	blocked bool // a goroutine waits in the kernel for the byte, which is another driver's
}

// openSidecar opens the file. It follows no link: who can write to the folder could lead it to
// another file.
func openSidecar(path string) (*sidecar, error) {
	hold, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	look, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, errors.Join(err, hold.Close())
	}
	s := &sidecar{path: path, hold: hold, look: look, held: make(map[int64]bool), watches: make(map[int64]*watch)}
	if s.file, err = hold.Stat(); err == nil {
		err = s.intact()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// intact reports that the file was replaced or deleted: others then lock the bytes of another file.
func (s *sidecar) intact() error { return sameFile(s.file, s.path) }

// sameFile reports, as an error, that path no longer leads to the file that it led to. That one must be open still: the
// numbers of files that are gone are given again.
func sameFile(was os.FileInfo, path string) error {
	now, err := os.Lstat(path)
	if err == nil && os.SameFile(was, now) {
		return nil
	}
	return fmt.Errorf("%s was replaced or deleted while in use; stop all processes that use it, then start them again",
		path)
}

// lock locks one of our bytes.
func (s *sidecar) lock(at int64) error {
	if err := setLock(s.hold, lockWrite, at, false); err != nil {
		return fmt.Errorf("lock byte %d of %s: %w", at, s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[at] = true
	return nil
}

// unlock unlocks one of our bytes and wakes who watches it. It does nothing if that was done before.
func (s *sidecar) unlock(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held[at] {
		return
	}
	delete(s.held, at)
	setLock(s.hold, lockNone, at, false) //nolint:errcheck // it fails only if the file is closed, which unlocks as well
	if w := s.watches[at]; w != nil && !w.blocked {
		s.wake(at)
	}
}

// lockApart locks a byte through an open file of its own, which a child process may inherit.
func (s *sidecar) lockApart(at int64) (*os.File, error) {
	f, err := os.OpenFile(s.path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	err = s.intact()
	if err == nil {
		err = setLock(f, lockWrite, at, false)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// holds reports whether the byte is one that lock has locked.
func (s *sidecar) holds(at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[at]
}

// locked reports whether any driver keeps the byte locked. If the kernel can't tell, it does: then the lease's end
// rules.
func (s *sidecar) locked(at int64) bool {
	return s.holds(at) || s.anyLocked(at, 1)
}

// anyLocked is locked for n bytes, of other drivers only; n = 0 means to the end.
func (s *sidecar) anyLocked(at, n int64) bool {
	found := true
	control(s.look, func(fd uintptr) error { //nolint:errcheck // found says it
		taken, err := fcntlWriteLocked(fd, at, n)
		found = taken || err != nil
		return err
	})
	return found
}

// lockedBy returns the processes that can be seen to have the byte locked.
func lockedBy(all []lockingProcess, at int64) []driver.Holder {
	var found []driver.Holder
	for _, p := range all {
		if p.first <= at && at <= p.last && !slices.Contains(found, p.holder) {
			found = append(found, p.holder)
		}
	}
	return found
}

// takeTurn waits until no other process writes to the database. SQLite's own lock polls, and starves the unlucky; the
// kernel's queue does neither.
func (s *sidecar) takeTurn() error { return setLock(s.hold, lockWrite, turnByte, true) }

func (s *sidecar) endTurn() {
	setLock(s.hold, lockNone, turnByte, false) //nolint:errcheck // it fails only if the file is closed
}

// watch sends to hint once the byte is not locked, at once if it is not now. Each hint is a channel with room for one.
//
// For the byte of another driver, a goroutine, and with it a thread, waits in the kernel. It can't be called back, so
// it stays until the byte is unlocked, also when nobody watches any more; but there is one per byte at most.
func (s *sidecar) watch(at int64, hint chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[at]
	if w == nil {
		w = &watch{hints: make(map[chan struct{}]bool), blocked: !s.held[at]}
		s.watches[at] = w
		if w.blocked {
			go s.await(at)
		}
	}
	w.hints[hint] = true
}

// unwatch takes back what watch did.
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

// await waits in the kernel until nobody has the byte locked.
func (s *sidecar) await(at int64) {
	// A read lock is enough to wait for a write lock, and several watchers don't wait for one another.
	err := control(s.look, func(fd uintptr) error {
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

// wake sends to all who watch the byte. s.mu is locked.
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
func (s *sidecar) close() error { return errors.Join(s.hold.Close(), s.look.Close()) }

// setLock sets a lock of one byte.
func setLock(f *os.File, kind int16, at int64, wait bool) error {
	return control(f, func(fd uintptr) error { return fcntlLock(fd, kind, at, 1, wait) })
}

// control calls fn with the descriptor of f, which stays open until fn returns, also if f is closed in the meantime.
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
