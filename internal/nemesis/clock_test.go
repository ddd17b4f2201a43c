//go:build linux

package nemesis

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// A clock is that of servers which run with testdata/clock.c: their wall clock is ahead of the machine's by what stands in a file.
type clock struct {
	t     testing.TB
	file  *os.File
	ahead time.Duration
}

// clock returns a world for starting servers in whose clock can be stepped.
func (w *world) clock() (*world, *clock) {
	w.t.Helper()
	dir := livetest.Account("nobody").Home(w.t)
	if err := os.Chmod(dir, 0o755); err != nil { // servers run as other users
		w.t.Fatal(err)
	}
	gcc := livetest.Binary(w.t, "gcc", "gcc")
	library, offset := filepath.Join(dir, "clock.so"), filepath.Join(dir, "ahead")
	if out, err := exec.Command(gcc, "-O2", "-shared", "-fPIC", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		w.t.Fatalf("compile testdata/clock.c: %v\n%s", err, out)
	}
	file, err := os.OpenFile(offset, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { file.Close() })
	c := &clock{t: w.t, file: file}
	c.step(0)
	inner := *w
	inner.t = livetest.WithEnv(w.t, "LD_PRELOAD="+library, "SNIB_CLOCK="+offset)
	return &inner, c
}

// step sets the clock ahead by d, or back.
func (c *clock) step(d time.Duration) {
	c.t.Helper()
	c.ahead += d
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead)), 0); err != nil {
		c.t.Fatal(err)
	}
}

// A direction is where clocks are set to.
type direction string

const (
	forward direction = "clock-forward"
	back    direction = "clock-back"
)

// step adds the fault that a clock is set. The last fault of all is one, too: what a step leaves behind is seen then.
func (w *world) step(c *clock, way direction) {
	w.last = string(way)
	w.add(string(way), func(time.Duration) {
		d := time.Minute // longer than all bounds
		if way == back {
			d = -d
		}
		w.during(string(way), "", func() { c.step(d) })
	})
}
