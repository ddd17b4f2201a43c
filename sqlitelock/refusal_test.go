//go:build linux

package sqlitelock

import (
	"os"
	"syscall"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
)

// TestRefusals checks what the errors of acquisitions say while a process
// that writes the file is stopped, and when the file is gone or replaced by a folder. There is no
// password, no grace period, and no server that could be dead.
func TestRefusals(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	first := open(t, path) // creates the file
	release(t, acquire(t, first, request("first")))
	move := func(*testing.T) func() {
		must(t, os.Rename(path, path+".old"))
		return func() { must(t, os.RemoveAll(path)); must(t, os.Rename(path+".old", path)) }
	}
	jobtest.RefusalTest{
		Open: map[string]func(*testing.T) driver.Driver{"File": func(t *testing.T) driver.Driver { return open(t, path) }},
		Outages: []jobtest.Outage{
			{Name: "Hung", Says: "no answer within ", Begin: func(t *testing.T) func() {
				p, _ := startStopped(t, "stop in transaction", path)
				return func() {
					p.Signal(syscall.SIGCONT)
					p.Expect("resumed")
				}
			}},
			{Name: "Gone", Denied: true, Says: "replaced or deleted", Begin: move},
			{Name: "Folder", Denied: true, Says: "replaced or deleted", Begin: func(t *testing.T) func() {
				end := move(t)
				must(t, os.Mkdir(path, 0o700))
				return end
			}},
		},
	}.Run(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
