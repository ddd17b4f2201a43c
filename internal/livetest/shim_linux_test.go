package livetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestShim checks that the shim steps the clock of a program and fails its fsync.
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
}
