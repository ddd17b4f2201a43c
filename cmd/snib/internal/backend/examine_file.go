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

// secretFindings judges who may read files that contain passwords and keys.
func secretFindings(files []string) (all []Finding) {
	for _, file := range files {
		if f, open := ExamineSecret(file, "chmod 600"); open {
			all = append(all, f)
		}
	}
	return all
}

// ExamineSecret judges who may read a file that contains a secret. It returns false if only the
// owner may. The advice begins with the remedy.
func ExamineSecret(file, remedy string) (Finding, bool) {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return Finding{}, false // another error reports a file that can't be read
	}
	return Finding{Check: "secret", Verdict: Unmet, Value: fmt.Sprintf("%s has mode %#o", file, info.Mode().Perm()),
		Advice: remedy + ": everybody who can read it can log in, and free each lock"}, true
}
