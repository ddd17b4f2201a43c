//go:build unix

package backend

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// examineAccess checks who may use and replace the file, and the files beside it.
func examineAccess(path string) ([]Finding, error) {
	permissions, err := filePermissions(path)
	if err != nil {
		return nil, err
	}
	folder, err := folderPermissions(filepath.Dir(path))
	return []Finding{permissions, folder}, err
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
					return Finding{Check: "permissions", Verdict: Unmet, Value: mode.String() + name, Advice: "chmod o-rw: everybody who can write to the file can free each lock in it"}, nil
				}
			case class.bits & 0o222:
				return Finding{Check: "permissions", Verdict: Unmet, Value: mode.String() + name, Advice: "chmod " + class.who + "-w: users of the file must be able to read and write it"}, nil
			default:
				return Finding{Check: "permissions", Verdict: Unmet, Value: mode.String() + name, Advice: "chmod " + class.who +
					"-r: a user who may only read it can block everybody, and sees the ids that free locks"}, nil
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
		return Finding{Check: "folder", Verdict: Unmet, Value: text, Advice: "chmod o-w: everybody who can write to the folder can replace the file"}, nil
	case mode&0o002 != 0:
		return Finding{Check: "folder", Verdict: Note, Value: text, Advice: "use a folder of your own: in this one anybody can create a file before you do"}, nil
	}
	return newFinding("folder", text, owner == 0 || owner == os.Geteuid(), Note, "its owner can replace the file: the owner must be you or root"), nil
}
