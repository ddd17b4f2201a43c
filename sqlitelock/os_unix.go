//go:build linux || darwin

package sqlitelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// checkFileAccess returns an error if the process may not read and write the file, or if the file
// has other names, whose users would lock bytes of another sidecar.
func checkFileAccess(path string, fi os.FileInfo) error {
	err := checkAccess(path, unix.R_OK|unix.W_OK)
	switch {
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: the file belongs to uid %d and gid %d, and has mode %#o; mode 0660 would share it, and "+
			"all files beside "+
			"it, with this group", err, fi.Sys().(*syscall.Stat_t).Uid, groupOf(fi), fi.Mode().Perm())
	case err != nil:
		return err
	case mountID(path) != mountID(filepath.Dir(path)):
		return driver.Invalidf("file: %s is mounted without the files beside it; mount the folder, and not the file", path)
	case hasHardLinks(path, fi):
		return driver.Invalidf("file: %s has hard links, whose users do not see its locks; delete the other names, which "+
			"find -samefile shows", path)
	}
	return nil
}

// hasHardLinks reports whether the file has another name than path. It ignores the temporary name
// that makeFile gives it for an instant, or leaves behind if its process dies then.
func hasHardLinks(path string, fi os.FileInfo) bool {
	if linkCount(fi) <= 1 {
		return false
	}
	names := 1
	dir := filepath.Dir(path)
	temporary, _ := fs.Glob(os.DirFS(dir), tempPattern) // it fails only for a bad pattern
	for _, name := range temporary {
		if other, err := os.Lstat(filepath.Join(dir, name)); err == nil && os.SameFile(fi, other) {
			names++
		}
	}
	now, err := os.Lstat(path) // makeFile may have deleted the temporary name meanwhile
	return err == nil && linkCount(now) > names
}

func linkCount(fi os.FileInfo) int { return int(fi.Sys().(*syscall.Stat_t).Nlink) }

// groupOf returns the id of the group that a file belongs to.
func groupOf(fi os.FileInfo) int { return int(fi.Sys().(*syscall.Stat_t).Gid) }

// inode returns the number of a file in its file system.
func inode(fi os.FileInfo) int64 {
	return int64(fi.Sys().(*syscall.Stat_t).Ino)
}

// lstat is os.Lstat for os.SameFile.
func lstat(path string) (os.FileInfo, error) { return os.Lstat(path) }
