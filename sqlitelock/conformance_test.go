//go:build linux

package sqlitelock

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
)

func TestConformance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	drivertest.Run(t, drivertest.Harness{
		Open: func(t *testing.T) driver.Driver { return open(t, path) },
		TTL:  200 * time.Millisecond,
		Kill: func(t *testing.T, req driver.Request) func() {
			return start(t, job{Role: "hold", Path: path, Req: req}).holding().kill
		},
		Restart: func(*testing.T) {}, // there is no server: the next driver opens the file anew
	})
}
