package sqlitelock

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sniblock/snib/driver"
)

// The commands of fcntl for locks that belong to an open file description.
const (
	ofdSetLock     = unix.F_OFD_SETLK
	ofdSetLockWait = unix.F_OFD_SETLKW
	ofdGetLock     = unix.F_OFD_GETLK
)

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
	st, err := statfs(dir)
	if err != nil {
		return err
	}
	if name := networkFileSystem(uint32(st.Type)); name != "" {
		return networkError(dir, name)
	}
	return checkAccess(dir, unix.W_OK|unix.X_OK)
}

// mountID returns the mount that a path is in: a file that is mounted by itself has another one
// than its folder. Before Linux 5.8 it returns 0 for all.
func mountID(path string) uint64 {
	var st unix.Statx_t
	unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st) //nolint:errcheck // then it is 0
	return st.Mnt_id
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
