package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestOrphans runs a command that leaves orphans behind. snib collects them when they have ended,
// and still returns the command's own exit code.
func TestOrphans(t *testing.T) {
	dir := t.TempDir()
	script := `
(sleep 0.2 & echo $! >orphan)
while [ -e /proc/$(cat orphan) ]; do sleep 0.02; done
exit 7`
	cmd := exec.Command("snib", "run", "x", "-c", script)
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

// TestNothingOutlivesTheLock ends runs whose command has put its work into a process group or a
// session of its own. Nothing of it may run when snib has released the lock. What ran below snib
// before, because a shell became snib, goes on.
func TestNothingOutlivesTheLock(t *testing.T) {
	t.Parallel()
	starts := map[string]string{
		"timeout": `timeout 5m sh -c "$WORK"; true`,
		"setsid":  `setsid -w sh -c "$WORK"; true`,
		"set -m":  `set -m; sh -c "$WORK" & wait`,
		"daemon":  `(setsid sh -c "$WORK" &) & exec sleep 300`,
	}
	if os.Geteuid() == 0 {
		starts["su"] = `su nobody -s /bin/sh -c "$WORK"; true`
	}
	ends := []struct {
		name  string
		flags []string
		end   func(t *testing.T, p *proc)
		code  int
	}{
		{"force", nil, func(t *testing.T, _ *proc) {
			if out, code := snib(t, "release", "x", "--force", "--yes"); code != 0 {
				t.Errorf("release: %d, %s", code, out)
			}
		}, 79},
		{"TERM", []string{"-k", "1"}, func(_ *testing.T, p *proc) { p.signal(syscall.SIGTERM) }, 143},
		{"timeout", []string{"-k", "1", "--timeout", "6"}, func(*testing.T, *proc) {}, 124},
	}
	for how, script := range starts {
		for _, e := range ends {
			t.Run(how+"/"+e.name, func(t *testing.T) {
				t.Parallel()
				dir := newStore(t)
				if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // su becomes another user
					t.Fatal(err)
				}
				log := filepath.Join(dir, "log")
				if err := os.WriteFile(log, nil, 0o666); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(log, 0o666); err != nil {
					t.Fatal(err)
				}
				setenv(t, "WORK", `trap "" HUP; echo $$ >`+log+`; exec sleep 300`)
				const before = `sleep 300 >/dev/null 2>&1 & echo $! >before; exec "$@"`
				p := start(t, append([]string{"sh", "-c", strings.ReplaceAll(before, "before", dir+"/before"), "sh",
					"snib", "run", "--ttl", "9s"}, append(e.flags, "x", "--", "bash", "-c", script)...)...)
				await(t, "work", func() bool { return strings.HasSuffix(read(log), "\n") })
				e.end(t, p)
				code := p.wait()
				if code != e.code {
					t.Errorf("exit code %d, want %d: %s", code, e.code, p.out.String())
				}
				pid, err := strconv.Atoi(strings.TrimSpace(read(log)))
				if err != nil || !isDead(pid) {
					t.Errorf("process %d lives, or %v", pid, err)
				}
				earlier, err := strconv.Atoi(strings.TrimSpace(read(filepath.Join(dir, "before"))))
				if err != nil || isDead(earlier) {
					t.Errorf("process %d, which is not of the command, is dead, or %v", earlier, err)
				}
				_ = syscall.Kill(earlier, syscall.SIGKILL)
			})
		}
	}
}
