//go:build unix

package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// stateFolder returns the folder for the state of the programs of this user.
func stateFolder() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib", nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state"), err
}

// checkStateFolder checks that only this user may write to the folder of the default file.
func checkStateFolder(dir string, info os.FileInfo) error {
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case int(owner) != os.Geteuid():
		return fmt.Errorf("%w: %s, the folder of the default file, belongs to uid %d; name a file of your own with --url sqlite:PATH",
			ErrConfig, dir, owner)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: %s, the folder of the default file, has mode %#o, so others can replace the file; chmod 700 it",
			ErrConfig, dir, info.Mode().Perm())
	}
	return nil
}
