package livetest

import (
	"os"
	"testing"
)

// An Account is a server that refuses to run as root. If the tests run as root, the server runs as
// the user nobody. Otherwise it runs as the tests do. It never runs as the user of the service that
// the system may have: whoever gets into a server of tests would own the data of that service.
type Account string

// Home returns a folder that belongs to that user and is closed to others. It is
// removed when the test ends. The folders of t.TempDir can't be used, because they
// are closed to other users.
func (a Account) Home(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", string(a)+"test") //nolint:usetesting // another user may not enter those
	if err == nil {
		t.Cleanup(func() {
			Want(t, os.RemoveAll(dir), nil, "remove the server's folder")
		})
		err = a.give(dir)
	}
	Must(t, err, "make a folder")
	return dir
}
