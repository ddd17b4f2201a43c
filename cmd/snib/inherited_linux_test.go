package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// startHeirs starts a snib run whose command starts two processes, and kills snib run and the
// command. It returns the pids of the two processes, which live on.
func startHeirs(t *testing.T, name string) []int {
	t.Helper()
	pids := t.TempDir() + "/pids"
	script := `sleep 300 >/dev/null 2>&1 & echo $! >"$0.new"; sleep 300 >/dev/null 2>&1 & echo $! >>"$0.new"; mv "$0.new" "$0"; wait`
	p := start(t, "snib", "run", name, "--ttl", "30", "--", "sh", "-c", script, pids)
	await(t, "heirs", func() bool { return exists(pids) })
	var all []int
	for _, text := range strings.Fields(read(pids)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		all = append(all, pid)
	}
	p.kill()
	return all
}

// TestLeaksKeepsWhatHeirsKeep checks that the lock stays taken while processes of a killed holder
// live on: leaks and show name them, and --fix frees nothing.
func TestLeaksKeepsWhatHeirsKeep(t *testing.T) {
	t.Parallel()
	newStore(t)
	heirs := startHeirs(t, "job")
	wantLeaks(t, "while heirs keep the lock", nil, "inherited job")
	for _, args := range [][]string{{"leaks"}, {"show", "job"}} {
		out, _ := snib(t, args...)
		for _, pid := range heirs {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), fmt.Sprintf("pid %d (sleep)", pid)) {
				t.Errorf("snib %v does not name %d: %s", args, pid, out)
			}
		}
		if strings.Contains(out, "lease ends") || strings.Contains(out, "lease left") {
			t.Errorf("snib %v shows the end of the lease, although the heirs keep the lock after it: %s", args, out)
		}
	}
	wantHeirs(t, heirs)
	if out, code := snib(t, "leaks", "--fix", "--yes"); code != 1 || strings.Contains(out, "freed") {
		t.Errorf("snib leaks --fix: exit code %d: %s", code, out)
	}
	if out, code := snib(t, "run", "-w", "1", "job", "--", "true"); code != 75 {
		t.Errorf("exit code %d while heirs of the killed holder live, want 75: %s", code, out)
	}
	for _, pid := range heirs {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := snib(t, "run", "-w", "20", "job", "--", "true"); code != 0 {
		t.Errorf("exit code %d after the end of the heirs, want 0: %s", code, out)
	}
	wantLeaks(t, "after the end of the heirs", nil)
}

// wantHeirs checks the heirs of a hold in JSON.
func wantHeirs(t *testing.T, want []int) {
	t.Helper()
	type holder struct {
		Inherited bool
		Heirs     []struct {
			PID   int
			Label string
		}
	}
	var shown struct{ Holders []holder }
	var leaks struct{ Leaks []struct{ Holder holder } }
	out, _ := snib(t, "show", "job", "-o", "json")
	out2, _ := snib(t, "leaks", "-o", "json")
	err, err2 := json.Unmarshal([]byte(out), &shown), json.Unmarshal([]byte(out2), &leaks)
	if err != nil || err2 != nil || len(shown.Holders) != 1 || len(leaks.Leaks) != 1 {
		t.Fatalf("%v, %v: %s%s", err, err2, out, out2)
	}
	for _, h := range []holder{shown.Holders[0], leaks.Leaks[0].Holder} {
		var got []int
		for _, heir := range h.Heirs {
			got = append(got, heir.PID)
			if heir.Label != "sleep" {
				t.Errorf("heir %+v, want a sleep", heir)
			}
		}
		slices.Sort(got)
		if !h.Inherited || !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("heirs = %v, inherited %v; want %v: %s", got, h.Inherited, want, out)
		}
	}
}

// TestInvisibleHeirs checks that heirs are mentioned that this user can't inspect.
func TestInvisibleHeirs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	dir := newStore(t)
	startHeirs(t, "job")
	bin := filepath.Join(t.TempDir(), "snib")
	copyProgram(t, bin)
	open := func(path string, _ os.FileInfo, err error) error { return errors.Join(err, os.Chmod(path, 0o777)) }
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), filepath.Walk(dir, open)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "show", "job")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Env = append(environ(t), "SNIB_URL=sqlite:"+dir+"/snib/locks.db")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(out)), " "), "a process that can't be seen") {
		t.Errorf("show by a user who may not inspect the heirs = %v: %s", err, out)
	}
}
