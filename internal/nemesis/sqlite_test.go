//go:build linux

package nemesis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/sniblock/snib/internal/livetest"
)

func startSQLite(w *world) {
	dir := filepath.Join(w.dir, "disk")
	mounted := w.mount(dir)
	file := filepath.Join(dir, "locks.db")
	w.direct = Store{Kind: "sqlite", Addrs: []string{file}}
	w.Store = w.direct
	w.Mixed, w.Abandon = true, true
	w.workerFaults()
	if mounted {
		w.add("disk-full", func(last time.Duration) {
			w.during("disk-full", "", func() { w.fill(file, last) })
		})
	}
}

// diskSize is enough for the locks of a run, and for the log that SQLite writes before its file.
const diskSize = 16 << 20

// mount puts a small disk of our own at dir, and reports whether it could: not everybody may mount.
func (w *world) mount(dir string) bool {
	w.t.Helper()
	err := livetest.Disk(w.t, dir, fmt.Sprintf("size=%d,mode=0700", diskSize))
	switch {
	case errors.Is(err, syscall.EPERM):
		w.t.Logf("no fault disk-full: %v", err)
		return false
	case err != nil:
		w.t.Fatal(err)
	}
	return true
}

// fill leaves no room on the disk of a database for a while. SQLite still has room at the beginning
// of its log; a reader keeps it from writing there.
func (w *world) fill(file string, last time.Duration) {
	w.t.Helper()
	reader, err := sqlite3.OpenFlags(file, sqlite3.OPEN_READONLY)
	if err != nil {
		w.t.Errorf("read the database: %v", err)
		return
	}
	defer reader.Close()
	if err := reader.Exec(`PRAGMA busy_timeout = 5000; BEGIN; SELECT count(*) FROM sqlite_schema`); err != nil {
		w.t.Errorf("read the database: %v", err)
		return
	}
	filler := filepath.Join(filepath.Dir(file), "filler")
	if err := os.WriteFile(filler, make([]byte, diskSize), 0o600); !errors.Is(err, syscall.ENOSPC) {
		w.t.Errorf("fill the disk: %v, want that there is no room", err)
	}
	w.meanwhile(last)
	if err := os.Remove(filler); err != nil {
		w.t.Errorf("make room on the disk: %v", err)
	}
}
