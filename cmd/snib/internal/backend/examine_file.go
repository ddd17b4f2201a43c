package backend

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// file returns the path of the store's file, if it has one.
func (s *Store) file() (path string, ok bool) { return strings.CutPrefix(s.URL, "sqlite:") }

// minFree is the free space that the disk should have, in bytes. A grant that
// can't be written is refused.
const minFree = 64 << 20

// examineFile checks a SQLite file, the files beside it, their folder and their disk.
func examineFile(path string) ([]Finding, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	free := uint64(disk.Bavail) * uint64(disk.Bsize) //nolint:gosec,unconvert // neither is negative; the types differ by system
	permissions, err := filePermissions(path)
	if err != nil {
		return nil, err
	}
	folder, err := folderPermissions(filepath.Dir(path))
	return []Finding{
		// On another disk it would not have opened.
		{Check: "file", Verdict: Good, Value: fmt.Sprintf("%d KiB on a local disk", info.Size()>>10)},
		permissions, folder,
		newFinding("disk", fmt.Sprintf("%d MiB free", free>>20), free >= minFree, Note, "make room: on a full disk no lock can be taken"),
	}, err
}

// filePermissions judges who may use the files. It reports the first one that is too
// open, or else the database.
func filePermissions(path string) (Finding, error) {
	var good Finding
	for _, suffix := range []string{"", "-wal", "-shm", ".live"} {
		info, err := os.Lstat(path + suffix)
		if err != nil {
			return Finding{}, err
		}
		mode, name := info.Mode().Perm(), ""
		if suffix != "" {
			name = ", of " + filepath.Base(path) + suffix
		}
		for _, class := range []struct {
			bits fs.FileMode
			who  string
		}{{0o060, "g"}, {0o006, "o"}} {
			switch mode & class.bits {
			case 0:
			case class.bits:
				if class.who == "o" {
					return Finding{"permissions", Unmet, mode.String() + name, "chmod o-rw: everybody who can write to the file can free each lock in it"}, nil
				}
			case class.bits & 0o222:
				return Finding{"permissions", Unmet, mode.String() + name, "chmod " + class.who + "-w: users of the file must be able to read and write it"}, nil
			default:
				return Finding{"permissions", Unmet, mode.String() + name, "chmod " + class.who +
					"-r: a user who may only read it can block everybody, and sees the owner ids that free locks"}, nil
			}
		}
		if suffix == "" {
			good = Finding{Check: "permissions", Verdict: Good, Value: mode.String()}
			if mode&0o060 != 0 {
				good.Value += fmt.Sprintf(", shared with the group %d", info.Sys().(*syscall.Stat_t).Gid)
			}
		}
	}
	return good, nil
}

// folderPermissions judges who may replace the file.
func folderPermissions(dir string) (Finding, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return Finding{}, err
	}
	owner, mode := int(info.Sys().(*syscall.Stat_t).Uid), info.Mode()
	text := fmt.Sprintf("%v, of uid %d", mode, owner)
	switch {
	case mode&0o002 != 0 && mode&fs.ModeSticky == 0:
		return Finding{"folder", Unmet, text, "chmod o-w: everybody who can write to the folder can replace the file"}, nil
	case mode&0o002 != 0:
		return Finding{"folder", Note, text, "use a folder of your own: in this one anybody can create a file before you do"}, nil
	}
	return newFinding("folder", text, owner == 0 || owner == os.Geteuid(), Note, "its owner can replace the file: the owner must be you or root"), nil
}
