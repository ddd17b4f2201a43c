package backend

import (
	"fmt"
	"os"
	"strings"
)

// file returns the path of the store's file, if it has one.
func (s *Store) file() (path string, ok bool) { return strings.CutPrefix(s.URL, "sqlite:") }

// examineFile checks a SQLite file, the files beside it, and their folder.
func examineFile(path string) ([]Finding, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	access, err := examineAccess(path)
	// On another disk it would not have opened.
	file := Finding{Check: "file", Verdict: Good, Value: fmt.Sprintf("%d KiB on a local disk", info.Size()>>10)}
	return append([]Finding{file}, access...), err
}
