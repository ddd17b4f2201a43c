package livetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestShim checks that the shim steps the clock of a program, fails its fsync, fills its disk, and
// cuts its files back to what was synced.
func TestShim(t *testing.T) {
	s := NewShim(t, "gcc")
	run := func(program string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Env = append(append(os.Environ(), s.Env()...), "TZ=UTC")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const step = 10 * 24 * time.Hour
	for _, ahead := range []time.Duration{0, step, -step} {
		s.SetClock(ahead)
		want := time.Now().Add(ahead).UTC().Format("2006-01")
		if got, err := run("date", "+%Y-%m"); err != nil || got != want+"\n" {
			t.Errorf("%v ahead: it is %q, %v, want %q", ahead, got, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	for _, fails := range []bool{false, true, false} {
		s.FailFsync(fails)
		if out, err := run("dd", "if=/dev/null", "of="+file, "conv=fsync"); (err != nil) != fails {
			t.Errorf("fsync fails: %v, want %v\n%s", err, fails, out)
		}
	}
	for _, full := range []bool{true, false} {
		s.FillDisk(full)
		out, err := run("dd", "if=/dev/zero", "bs=100", "count=1", "of="+file)
		if (err != nil) != full || full && !strings.Contains(out, "No space left") {
			t.Errorf("the disk is full (%v): %v\n%s", full, err, out)
		}
	}
	dir := t.TempDir()
	file = filepath.Join(dir, "file")
	for _, args := range [][]string{{"bs=100"}, {"bs=50", "conv=fsync,notrunc"}, {"bs=200", "conv=notrunc"}} {
		if out, err := run("dd", append(args, "if=/dev/zero", "count=1", "of="+file)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	s.CutPower(dir)
	if info, err := os.Stat(file); err != nil || info.Size() != 100 {
		t.Errorf("after a power cut the file is %v, %v, want the 100 bytes that it had at the fsync", info, err)
	}
}
