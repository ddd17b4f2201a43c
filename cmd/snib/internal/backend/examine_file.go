package backend

import (
	"fmt"
	"os"
	"strings"
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
	free, err := freeSpace(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	access, err := examineAccess(path)
	if err != nil {
		return nil, err
	}
	// On another disk it would not have opened.
	file := Finding{Check: "file", Verdict: Good, Value: fmt.Sprintf("%d KiB on a local disk", info.Size()>>10)}
	disk := newFinding("disk", fmt.Sprintf("%d MiB free", free>>20), free >= minFree, Note, "make room: on a full disk no lock can be taken")
	return append(append([]Finding{file}, access...), disk), nil
}
