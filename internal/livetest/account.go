package livetest

import (
	"os"
	"testing"
)

// An Account is the user for a server that refuses to run as root. If the tests run
// as root, the server runs as that user, or as "nobody" if there is no such user.
// Otherwise it runs as the tests do.
type Account string

// Home returns a folder that belongs to that user and is closed to others. It is
// removed when the test ends. The folders of t.TempDir can't be used, because they
// are closed to other users.
func (a Account) Home(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", string(a)+"test") //nolint:usetesting // another user may not enter those
	if err == nil {
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Errorf("remove the server's folder: %v", err)
			}
		})
		err = a.give(dir)
	}
	if err != nil {
		t.Fatalf("make a folder: %v", err)
	}
	return dir
}
