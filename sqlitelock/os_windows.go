package sqlitelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	"github.com/sniblock/snib/driver"
)

// noFollow makes opening a symbolic link fail.
const noFollow = windows.O_FILE_FLAG_OPEN_REPARSE_POINT

// bootID returns the number of the current boot. A different number means that every process
// of the earlier boot is gone. Where Windows does not count boots, all have one id: then a
// detached lease may outlive a restart for as long as its TTL.
func bootID() (string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE,
		`SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters`, registry.QUERY_VALUE)
	if errors.Is(err, fs.ErrNotExist) {
		return "unknown", nil
	}
	if err != nil {
		return "", err
	}
	defer key.Close()
	id, _, err := key.GetIntegerValue("BootId")
	if errors.Is(err, fs.ErrNotExist) {
		return "unknown", nil
	}
	return "boot " + strconv.FormatUint(id, 10), err
}

// bootClock returns a clock in nanoseconds that all processes of this boot share, and that
// nobody can set. If it stands still while the machine sleeps, a lease lasts longer here than
// for its holder, whose clock counts sleep, which is safe.
func bootClock() (func() int64, error) {
	kernel := windows.NewLazySystemDLL("kernel32.dll")
	counter, frequency := kernel.NewProc("QueryPerformanceCounter"), kernel.NewProc("QueryPerformanceFrequency")
	if err := errors.Join(counter.Find(), frequency.Find()); err != nil {
		return nil, err
	}
	read := func(p *windows.LazyProc) int64 {
		var n int64
		p.Call(uintptr(unsafe.Pointer(&n))) //nolint:errcheck // neither can fail
		return n
	}
	perSecond := read(frequency)
	return func() int64 {
		n := read(counter)
		return n/perSecond*1e9 + n%perSecond*1e9/perSecond
	}, nil
}

// checkFolder refuses folders where locks would not work. Whether the process may write there
// shows when it does.
func checkFolder(dir string) error {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return err
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return driver.Invalidf(
			"place: %s is on a network drive, where the locks of different hosts can't be relied on; use a local disk", dir)
	}
	return nil
}

// checkFileAccess returns nil: the folder's access list decides, and opening the file shows it.
func checkFileAccess(string, os.FileInfo) error { return nil }

// lstat is os.Lstat for os.SameFile. With os.Lstat, that would find out only later which file the
// path leads to, and could not while the file is mapped.
func lstat(path string) (os.FileInfo, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	const itself = windows.FILE_FLAG_OPEN_REPARSE_POINT | windows.FILE_FLAG_BACKUP_SEMANTICS // not what a link leads to
	h, err := windows.CreateFile(name, 0, share, nil, windows.OPEN_EXISTING, itself, 0)
	if err != nil {
		return nil, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(h), path)
	defer f.Close()
	return f.Stat()
}

// groupOf returns -1: the folder's access list decides who may use a file.
func groupOf(os.FileInfo) int { return -1 }

// inode returns 0: Windows refuses to delete or replace a file that is open.
func inode(os.FileInfo) int64 { return 0 }

// diskFull reports whether less than 64 KiB can still be written in the folder.
func diskFull(dir string) bool {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return false
	}
	var free uint64
	return windows.GetDiskFreeSpaceEx(path, &free, nil, nil) == nil && free < 64<<10
}
