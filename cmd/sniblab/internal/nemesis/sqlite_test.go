//go:build linux

package nemesis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ncruces/go-sqlite3"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/internal/livetest"
)

func startSQLite(w *world) {
	dir := filepath.Join(w.dir, "disk")
	mounted := w.mount(dir)
	file := filepath.Join(dir, "locks.db")
	w.Mixed = true
	w.use("sqlite", &servers.Set{T: w.t, Addrs: []string{file}, Direct: true, Own: map[string]func(servers.Strike){
		"disk-full": func(k servers.Strike) { k.Hold(func() { w.fill(file, k.Wait) }) },
	}})
	if !mounted {
		w.faults = slices.DeleteFunc(w.faults, func(f servers.Fault) bool { return f.Name == "disk-full" })
	}
}

// diskSize is enough for the locks of a run and for SQLite's write-ahead log.
const diskSize = 16 << 20

// mount mounts a small file system at dir. It reports false if the process may not mount.
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

// fill fills the disk of a database for a while. SQLite could still write at the
// beginning of its log; a reader prevents that.
func (w *world) fill(file string, wait func()) {
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
	wait()
	if err := os.Remove(filler); err != nil {
		w.t.Errorf("make room on the disk: %v", err)
	}
}
