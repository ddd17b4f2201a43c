package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// subreaper is the program "subreaper COMMAND…". It becomes COMMAND, as a process that adopts the
// orphans below it, like the first process of a container.
func subreaper() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		die("subreaper: %v", err)
	}
	path, err := exec.LookPath(os.Args[1])
	if err != nil {
		die("subreaper: %v", err)
	}
	die("subreaper: %v", syscall.Exec(path, os.Args[1:], os.Environ()))
}

// TestOrphans runs a command that leaves orphans behind, under a snib that adopts them. It
// collects them when they have ended, and still returns the command's own exit code.
func TestOrphans(t *testing.T) {
	dir := t.TempDir()
	script := `
(sleep 0.2 & echo $! >orphan)
while [ -e /proc/$(cat orphan) ]; do sleep 0.02; done
exit 7`
	cmd := exec.Command("subreaper", "snib", "run", "x", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if !poll(func() bool { return len(ended) > 0 }) {
		pid, _ := os.ReadFile(filepath.Join(dir, "orphan"))
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strings.TrimSpace(string(pid))))
		_ = cmd.Process.Signal(syscall.SIGTERM)
		t.Fatalf("the orphan was not collected: %s", stat)
	}
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != 7 || out.Len() > 0 {
		t.Errorf("exit code %d, output %q; want 7 and none", code, &out)
	}
}
