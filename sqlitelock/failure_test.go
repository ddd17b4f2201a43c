//go:build linux

package sqlitelock

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
)

// TestFailures proves cells of SQLite in docs/failures.md; other tests prove the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	dir := mount(t, "size=1m")
	path, filler := filepath.Join(dir, "locks.db"), filepath.Join(dir, "filler")
	jobtest.Failures(t, func(t *testing.T) driver.Driver { return open(t, path) },
		jobtest.Failure{Name: "FullDisk", Begin: func(t *testing.T) func() {
			f, err := os.Create(filler)
			must(t, err)
			for err == nil { // the write-ahead log has no room to grow
				_, err = f.Write(make([]byte, 512))
			}
			must(t, f.Close())
			return func() { must(t, os.Remove(filler)) }
		}},
	)
}
