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

// A shim is what stands between a server and the system: see testdata/shim.c.
type shim struct {
	t     testing.TB
	file  *os.File
	ahead time.Duration // the server's wall clock
	fails int64         // not 0 if fsync fails
}

// shim returns a test whose servers run with the shim.
func (w *world) shim() (testing.TB, *shim) {
	w.t.Helper()
	dir := livetest.Account("nobody").Home(w.t)
	if err := os.Chmod(dir, 0o755); err != nil { // servers run as other users
		w.t.Fatal(err)
	}
	gcc := livetest.Binary(w.t, "gcc", "gcc")
	library, orders := filepath.Join(dir, "shim.so"), filepath.Join(dir, "orders")
	if out, err := exec.Command(gcc, "-O2", "-shared", "-fPIC", "-o", library, "testdata/shim.c").CombinedOutput(); err != nil {
		w.t.Fatalf("compile testdata/shim.c: %v\n%s", err, out)
	}
	file, err := os.OpenFile(orders, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { file.Close() })
	s := &shim{t: w.t, file: file}
	s.write()
	return livetest.WithEnv(w.t, "LD_PRELOAD="+library, "SNIB_SHIM="+orders), s
}

func (s *shim) write() {
	s.t.Helper()
	orders := binary.NativeEndian.AppendUint64(nil, uint64(s.ahead))
	if _, err := s.file.WriteAt(binary.NativeEndian.AppendUint64(orders, uint64(s.fails)), 0); err != nil {
		s.t.Fatal(err)
	}
}

// A direction is where clocks are set to.
type direction string

const (
	forward direction = "clock-forward"
	back    direction = "clock-back"
)

// step adds the fault that a clock is set. The last fault of all is one, too: what a step leaves behind is seen then.
func (w *world) step(s *shim, way direction) {
	w.last = string(way)
	w.alone = true // what a dead or lost holder leaves behind lasts as long as the step, by that clock
	w.add(string(way), func(time.Duration) {
		d := time.Minute // longer than all bounds
		if way == back {
			d = -d
		}
		w.during(string(way), "", func() {
			s.ahead += d
			s.write()
		})
	})
}

// mortal is a server that may end by itself.
type mortal interface {
	server
	MayEnd()
}

// fsync adds the fault that a server's disk fails. The server, which has to give up then, is started again with a disk that is well.
func (w *world) fsync(s *shim, server mortal) {
	w.add("fsync", func(last time.Duration) {
		w.during("fsync", "", func() {
			server.MayEnd()
			s.fails = 1
			s.write()
			w.meanwhile(last)
			s.fails = 0
			s.write()
			server.Kill() // if it is still there
			server.Restart()
		})
	})
}

// The shim steps the clock of a program and fails its fsync.
func TestShim(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	_, s := w.shim()
	run := func(program string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		dir := filepath.Dir(s.file.Name())
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(dir, "shim.so"), "SNIB_SHIM="+s.file.Name(), "TZ=UTC")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	file := filepath.Join(t.TempDir(), "file")
	for _, ahead := range []time.Duration{0, 10 * 24 * time.Hour, -10 * 24 * time.Hour} {
		s.ahead = ahead
		s.write()
		want := time.Now().Add(ahead).UTC().Format("2006-01")
		if got, err := run("date", "+%Y-%m"); err != nil || got != want+"\n" {
			t.Errorf("%v ahead: it is %q, %v, want %q", ahead, got, err, want)
		}
	}
	if out, err := run("dd", "if=/dev/null", "of="+file, "conv=fsync"); err != nil {
		t.Errorf("fsync fails: %v\n%s", err, out)
	}
	s.fails = 1
	s.write()
	if out, err := run("dd", "if=/dev/null", "of="+file, "conv=fsync"); err == nil {
		t.Errorf("fsync does not fail\n%s", out)
	}
}
