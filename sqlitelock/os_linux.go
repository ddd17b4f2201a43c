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

// fcntlLock sets a lock that belongs to the open file description, not to the process, on n bytes at off; n = 0 means
// to the end. Without wait, a lock in the way is EAGAIN.
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

// fcntlWriteLocked reports whether another open file description has a write lock on any of n bytes at off.
func fcntlWriteLocked(fd uintptr, off, n int64) (bool, error) {
	for {
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: off, Len: n} // read locks are not in the way of this one
		switch err := unix.FcntlFlock(fd, unix.F_OFD_GETLK, &lock); err {
		case nil:
			return lock.Type != unix.F_UNLCK, nil
		case unix.EINTR:
		default:
			return false, err
		}
	}
}

// bootID names the time since the kernel started. Another id means that every process of then is gone.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(b)), nil
}

// bootClock returns a clock in nanoseconds which all processes since the kernel started share, which counts sleep, and
// which nobody can set: CLOCK_BOOTTIME, less what our time namespace adds to it.
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
	// The offsets are those that our children get, which are ours unless we called unshare(2) ourselves.
	own, err1 := os.Readlink("/proc/self/ns/time")
	next, err2 := os.Readlink("/proc/self/ns/time_for_children")
	if err1 != nil || err2 != nil || own != next {
		return 0, fmt.Errorf("%w clock: the process has left its time namespace without forking", driver.ErrInvalid)
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

// checkFolder refuses folders where locks would not work or where we may not write.
func checkFolder(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	if name := network(uint32(st.Type & math.MaxUint32)); name != "" {
		return fmt.Errorf("%w place: %s is on %s, where processes of several hosts would not see each other's locks; "+
			"use a local disk", driver.ErrInvalid, dir, name)
	}
	return access(dir, unix.W_OK|unix.X_OK)
}

// access reports, as an error that matches fs.ErrPermission, what we may not do with the file.
func access(path string, mode uint32) error {
	switch err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err {
	case nil:
		return nil
	case unix.EROFS:
		return fmt.Errorf("open %s: %w: the file system is read-only", path, fs.ErrPermission)
	default:
		return &fs.PathError{Op: "write to", Path: path, Err: err}
	}
}

// diskFull reports whether hardly anything more can be written in the folder.
func diskFull(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Bavail*uint64(st.Bsize) < 64<<10
}

// network returns the name of a file system, by its magic number of statfs(2), whose locks can't be relied on because
// other hosts may share it; "" for a local one.
func network(magic uint32) string {
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

// noFollow opens no symbolic link.
const noFollow = unix.O_NOFOLLOW

// checkFile reports what keeps us from writing to the file, if it is there. A symbolic link to the
// database was followed before; one in the place of a file beside it would lead to a file of
// something else.
func checkFile(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case fi.IsDir():
		return fmt.Errorf("%w file: %s is a folder; name a file in it, such as %s",
			driver.ErrInvalid, path, filepath.Join(path, "locks.db"))
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%w file: %s is not a regular file", driver.ErrInvalid, path)
	}
	err = access(path, unix.R_OK|unix.W_OK)
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: the file belongs to uid %d and gid %d, and has mode %#o; mode 0660 would share it, and all those beside "+
			"it, with that group", err, fi.Sys().(*syscall.Stat_t).Uid, groupOf(fi), fi.Mode().Perm())
	}
	return err
}

// groupOf returns the id of the group that a file belongs to.
func groupOf(fi os.FileInfo) int { return int(fi.Sys().(*syscall.Stat_t).Gid) }

// inode returns the number of a file in its file system.
func inode(fi os.FileInfo) int64 {
	return int64(fi.Sys().(*syscall.Stat_t).Ino)
}
