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
		mode := info.Mode().Perm()
		if others := mode & 0o066; others != 0 && others != 0o060 {
			return Finding{Check: "permissions", Verdict: Unmet, Value: fmt.Sprintf("%v, of %s", mode, filepath.Base(path)+suffix), Advice: "give all its files mode 0600, or 0660 for " +
				"a group: who may write to one can free each lock, and who may only read one can block everybody, and sees the ids that free locks"}, nil
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
