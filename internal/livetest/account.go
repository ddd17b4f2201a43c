package livetest

import (
	"os"
	"testing"
)

// An Account is the user whom a server runs as that refuses to run as root: where we are root, that user, or if there is none "nobody";
// else servers run as we do.
type Account string

// Home returns a folder of that user, and of nobody else; it is removed with the test. The test's own ones are closed to other users.
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
