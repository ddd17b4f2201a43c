//go:build linux || darwin

package sqlitelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sniblock/snib/driver"
)

func statfs(dir string) (st unix.Statfs_t, err error) {
	if err := unix.Statfs(dir, &st); err != nil {
		return st, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return st, nil
}

// networkError refuses a folder that other hosts may share.
func networkError(dir, kind string) error {
	return driver.Invalidf("place: %s is on %s, where processes of different hosts do not see each other's locks; "+
		"use a local disk", dir, kind)
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
	// The types differ by system; neither number is negative, except Bavail if only root may write.
	return unix.Statfs(dir, &st) == nil && int64(st.Bavail)*int64(st.Bsize) < 64<<10 //nolint:gosec,unconvert // see above
}

// noFollow makes opening a symbolic link fail.
const noFollow = unix.O_NOFOLLOW

// checkFileAccess returns an error if the process may not read and write the file.
func checkFileAccess(path string, fi os.FileInfo) error {
	err := checkAccess(path, unix.R_OK|unix.W_OK)
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: the file belongs to uid %d and gid %d, and has mode %#o; mode 0660 would share it, and "+
			"all files beside "+
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

// lstat is os.Lstat for os.SameFile.
func lstat(path string) (os.FileInfo, error) { return os.Lstat(path) }
