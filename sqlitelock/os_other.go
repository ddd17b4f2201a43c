//go:build !linux

package sqlitelock

import (
	"errors"
	"os"
	"runtime"

	"github.com/sniblock/snib/driver"
)

// Kinds of byte-range locks.
const (
	lockRead int16 = iota
	lockWrite
	lockNone
)

const noFollow = 0

// Open calls checkFolder first, so the rest is never reached.
func checkFolder(string) error {
	return driver.Invalidf("platform: SQLite locks need Linux, for its locks on open file descriptions; this is %s", runtime.GOOS)
}

func checkFile(string) error                               { return errors.ErrUnsupported }
func fcntlLock(uintptr, int16, int64, int64, bool) error   { return errors.ErrUnsupported }
func fcntlWriteLocked(uintptr, int64, int64) (bool, error) { return false, errors.ErrUnsupported }
func bootID() (string, error)                              { return "", errors.ErrUnsupported }
func bootClock() (func() int64, error)                     { return nil, errors.ErrUnsupported }
func groupOf(os.FileInfo) int                              { return 0 }
func inode(os.FileInfo) int64                              { return 0 }
func diskFull(string) bool                                 { return false }

// A lockingProcess is a process that has bytes of the sidecar write-locked.
type lockingProcess struct {
	first, last int64
	holder      driver.Holder
}

func (s *sidecar) lockingProcesses() []lockingProcess { return nil }
