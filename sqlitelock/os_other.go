//go:build !linux && !darwin && !windows

package sqlitelock

import (
	"errors"
	"os"
	"runtime"

	"github.com/sniblock/snib/driver"
)

const noFollow = 0

// Open calls checkFolder first, so the rest is never reached.
func checkFolder(string) error {
	return driver.Invalidf("platform: SQLite locks need Linux, macOS or Windows; this is %s", runtime.GOOS)
}

func checkFileAccess(string, os.FileInfo) error { return errors.ErrUnsupported }
func bootID() (string, error)                   { return "", errors.ErrUnsupported }
func bootClock() (func() int64, error)          { return nil, errors.ErrUnsupported }
func groupOf(os.FileInfo) int                   { return -1 }
func inode(os.FileInfo) int64                   { return 0 }
func diskFull(string) bool                      { return false }
func lstat(string) (os.FileInfo, error)         { return nil, errors.ErrUnsupported }

// byteLocks does nothing, because no sidecar is opened here.
type byteLocks struct{ path string }

const canInherit = false

func openByteLocks(string) (*byteLocks, error)         { return nil, errors.ErrUnsupported }
func (*byteLocks) stat() (os.FileInfo, error)          { return nil, errors.ErrUnsupported }
func (*byteLocks) lock(int64) error                    { return errors.ErrUnsupported }
func (*byteLocks) unlock(int64)                        {}
func (*byteLocks) lockNewFile(int64) (*os.File, error) { return nil, errors.ErrUnsupported }
func (*byteLocks) unlockFile(*os.File, int64)          {}
func (*byteLocks) locked(int64) (bool, error)          { return false, errors.ErrUnsupported }
func (*byteLocks) anyLocked() (bool, error)            { return false, errors.ErrUnsupported }
func (*byteLocks) wait(int64) error                    { return errors.ErrUnsupported }
func (*byteLocks) lockWriter() error                   { return errors.ErrUnsupported }
func (*byteLocks) unlockWriter()                       {}
func (*byteLocks) close() error                        { return nil }
