package backend

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// file is the path of the store's file, if it has one.
func (s *Store) file() (path string, ok bool) { return strings.CutPrefix(s.URL, "sqlite:") }

// room is how much should be free on the disk: a grant that can't be written is refused.
const room = 64 << 20

// examineFile looks at a SQLite file and its disk.
func examineFile(path string) ([]Finding, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	free := disk.Bavail * uint64(disk.Bsize) //nolint:gosec // a block has a positive size
	mode := info.Mode().Perm()
	return []Finding{
		{Check: "file", Verdict: Good, Value: fmt.Sprintf("%d KiB on a local disk", info.Size()>>10)}, // else it would not have opened
		tell("permissions", mode.String(), mode&0o002 == 0, Unmet, "chmod o-w: whoever can write to the file can free each lock in it"),
		tell("disk", fmt.Sprintf("%d MiB free", free>>20), free >= room, Note, "make room: on a full disk no lock can be taken"),
	}, nil
}
