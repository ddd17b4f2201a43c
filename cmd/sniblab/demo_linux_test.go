package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// TestDemoEnds checks that no process is left when a demo is interrupted, or its director is
// killed, while a client waits.
func TestDemoEnds(t *testing.T) {
	t.Parallel()
	livetest.Binary(t, "redis", "redis-server")
	tests := []struct {
		signal syscall.Signal
		want   int // exit code, or -1 if the signal ends the process
	}{
		{syscall.SIGINT, 130},
		{syscall.SIGKILL, -1},
	}
	for _, tt := range tests {
		t.Run(tt.signal.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command("sniblab", "demo", "setnx-expire")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			seen := false
			for s := bufio.NewScanner(out); s.Scan(); {
				if strings.Contains(s.Text(), "waits for the lock") && !seen {
					seen = true
					if n := processesIn(t, dir); n < 3 {
						t.Errorf("%d processes run the demo, want the director, B and the server", n)
					}
					if err := cmd.Process.Signal(tt.signal); err != nil {
						t.Error(err)
					}
				}
			}
			_ = cmd.Wait() // its state says the same
			if got := cmd.ProcessState.ExitCode(); got != tt.want {
				t.Errorf("exit code = %d, want %d", got, tt.want)
			}
			if !poll(func() bool { return processesIn(t, dir) == 0 }) {
				t.Error("processes of the demo are left")
			}
			if left, err := os.ReadDir(dir); tt.want >= 0 && (err != nil || len(left) > 0) {
				t.Errorf("the demo left %v (%v)", left, err)
			}
		})
	}
}

// processesIn counts the processes whose working folder is in dir.
func processesIn(t *testing.T, dir string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range all {
		if folder, err := os.Readlink(link); err == nil && strings.HasPrefix(folder, dir) {
			n++
		}
	}
	return n
}
