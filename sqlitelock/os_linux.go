package sqlitelock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sniblock/snib/driver"
)

// Kinds of byte-range locks.
const (
	lockRead  = unix.F_RDLCK
	lockWrite = unix.F_WRLCK
	lockNone  = unix.F_UNLCK
)

// fcntlLock sets a lock on n bytes at off; n = 0 means to the end. The lock belongs to the open
// file description, not to the process. Without wait, a conflicting lock is EAGAIN.
func fcntlLock(fd uintptr, kind int16, off, n int64, wait bool) error {
	cmd := unix.F_OFD_SETLK
	if wait {
		cmd = unix.F_OFD_SETLKW
	}
	for {
		err := unix.FcntlFlock(fd, cmd, &unix.Flock_t{Type: kind, Start: off, Len: n})
		if err != unix.EINTR {
			return err
		}
	}
}

// fcntlWriteLocked reports whether another open file description has a write lock
// on any of n bytes at off.
func fcntlWriteLocked(fd uintptr, off, n int64) (bool, error) {
	for {
		// Read locks do not conflict with this one.
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: off, Len: n}
		switch err := unix.FcntlFlock(fd, unix.F_OFD_GETLK, &lock); err {
		case nil:
			return lock.Type != unix.F_UNLCK, nil
		case unix.EINTR:
		default:
			return false, err
		}
	}
}

// bootID returns the kernel's id for the current boot. A different id means that
// every process of the earlier boot is gone.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(b)), nil
}

// bootClock returns a clock in nanoseconds that all processes of this boot share, that counts
// sleep, and that nobody can set: CLOCK_BOOTTIME without the offset of our time namespace.
func bootClock() (func() int64, error) {
	shift, err := timeShift()
	if err != nil {
		return nil, err
	}
	return func() int64 {
		var ts unix.Timespec
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) //nolint:errcheck // it can't fail for this clock
		return ts.Nano() - shift
	}, nil
}

// timeShift returns by how much our time namespace shifts CLOCK_BOOTTIME (time_namespaces(7)).
func timeShift() (int64, error) {
	b, err := os.ReadFile("/proc/self/timens_offsets")
	if os.IsNotExist(err) {
		return 0, nil // the kernel has no time namespaces
	}
	if err != nil {
		return 0, err
	}
	// The offsets are those of our children. They are also ours unless this process
	// called unshare(2).
	own, err1 := os.Readlink("/proc/self/ns/time")
	next, err2 := os.Readlink("/proc/self/ns/time_for_children")
	if err1 != nil || err2 != nil || own != next {
		return 0, driver.Invalidf("clock: the process has left its time namespace without forking")
	}
	return parseTimeShift(string(b))
}

// parseTimeShift reads the line "boottime SECONDS NANOSECONDS".
func parseTimeShift(text string) (int64, error) {
	for line := range strings.Lines(text) {
		var sec, nsec int64
		if n, _ := fmt.Sscanf(line, "boottime %d %d", &sec, &nsec); n == 2 {
			return sec*int64(time.Second) + nsec, nil
		}
	}
	return 0, fmt.Errorf("no line for boottime in %q", text)
}

// checkFolder refuses folders where locks would not work or where the process may not write.
func checkFolder(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	if name := networkFileSystem(uint32(st.Type & math.MaxUint32)); name != "" {
		return driver.Invalidf("place: %s is on %s, where processes of different hosts do not see each other's locks; "+
			"use a local disk", dir, name)
	}
	return checkAccess(dir, unix.W_OK|unix.X_OK)
}

// checkAccess returns an error that matches fs.ErrPermission if the process does not have the
// access to the file that mode names.
func checkAccess(path string, mode uint32) error {
	switch err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err {
	case nil:
		return nil
	case unix.EROFS:
		return fmt.Errorf("open %s: %w: the file system is read-only", path, fs.ErrPermission)
	default:
		return &fs.PathError{Op: "write to", Path: path, Err: err}
	}
}

// diskFull reports whether less than 64 KiB can still be written in the folder.
func diskFull(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Bavail*uint64(st.Bsize) < 64<<10
}

// networkFileSystem returns the name of a file system that other hosts may share, so that its
// locks can't be relied on, or "" for a local one. magic is its type as statfs(2) reports it.
func networkFileSystem(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "SMB"
	case unix.V9FS_MAGIC:
		return "9P"
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE" // sshfs, s3fs, GlusterFS, virtiofs and so on
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	case unix.CODA_SUPER_MAGIC:
		return "Coda"
	case unix.OCFS2_SUPER_MAGIC:
		return "OCFS2"
	case 0x0bd00bd0:
		return "Lustre"
	case 0x47504653:
		return "GPFS"
	case 0x01161970:
		return "GFS2"
	case 0x19830326:
		return "BeeGFS"
	case 0x786f4256:
		return "VirtualBox shared folders"
	default:
		return ""
	}
}

// noFollow makes opening a symbolic link fail.
const noFollow = unix.O_NOFOLLOW

// checkFile returns an error if the file exists and can't be written to. A symbolic
// link to the database was followed before; a link in place of a file beside it
// would lead to an unrelated file.
func checkFile(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case fi.IsDir():
		return driver.Invalidf("file: %s is a folder; name a file in it, such as %s", path, filepath.Join(path, "locks.db"))
	case !fi.Mode().IsRegular():
		return driver.Invalidf("file: %s is not a regular file", path)
	}
	err = checkAccess(path, unix.R_OK|unix.W_OK)
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: the file belongs to uid %d and gid %d, and has mode %#o; mode 0660 would share it, and all files beside "+
			"it, with this group", err, fi.Sys().(*syscall.Stat_t).Uid, groupOf(fi), fi.Mode().Perm())
	}
	return err
}

// groupOf returns the id of the group that a file belongs to.
func groupOf(fi os.FileInfo) int { return int(fi.Sys().(*syscall.Stat_t).Gid) }

// inode returns the number of a file in its file system.
func inode(fi os.FileInfo) int64 {
	return int64(fi.Sys().(*syscall.Stat_t).Ino)
}
