//go:build unix

package access

import (
	"fmt"
	"io/fs"
)

// checkMode reports a file that others than its user and group may read, or that others than its
// user may write to.
func checkMode(path, what string, mode fs.FileMode) error {
	if open := mode.Perm() & 0o027; open != 0 {
		return fmt.Errorf("%s, %s, has mode %04o, so others may read or change it; run: chmod go-w,o-rwx %s", what, path, mode.Perm(), path)
	}
	return nil
}
