//go:build linux || darwin || windows

package sqlitelock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/driver/fault"
)

// TestConformance runs the suite on drivers that can be cut off from their file, as a hanging disk
// would do.
func TestConformance(t *testing.T) {
	h := harness(filepath.Join(t.TempDir(), "locks.db"))
	open := h.Open
	h.Open = func(t *testing.T) driver.Driver { return fault.Wrap(open(t), fault.Plan{}) }
	h.Sever = func(_ *testing.T, d driver.Driver) func() {
		f := d.(*fault.Driver)
		f.Sever(fault.Hang)
		return f.Heal
	}
	drivertest.Run(t, h)
}

func harness(path string) drivertest.Harness {
	return drivertest.Harness{
		Open: func(t *testing.T) driver.Driver { return open(t, path) },
		TTL:  200 * time.Millisecond,
		Kill: func(t *testing.T, req driver.Request) func() {
			p := start(t, "hold", path, req)
			p.Expect("held")
			return p.Kill
		},
		Restart: func(*testing.T) {}, // there is no server: the next driver opens the file anew
		Empty: map[string]func(*testing.T){
			"delete": func(t *testing.T) { sql(t, path, "DELETE FROM leases") },
			"drop":   func(t *testing.T) { sql(t, path, "DROP TABLE leases") },
		},
	}
}

// sql runs statements in the database at path, which it creates if necessary.
func sql(t *testing.T, path string, statements ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	db, err := connect(path, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if err := db.exec(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.close(); err != nil {
		t.Fatal(err)
	}
}
