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

// startOrphans starts a snib run whose command leaves two processes behind, kills it, and
// returns the pids of these two when it is dead.
func startOrphans(t *testing.T, name string) []int {
	t.Helper()
	pids := t.TempDir() + "/pids"
	script := `sleep 300 >/dev/null 2>&1 & echo $! >"$0.new"; sleep 300 >/dev/null 2>&1 & echo $! >>"$0.new"; mv "$0.new" "$0"; wait`
	p := start(t, "snib", "run", name, "--ttl", "30", "--", "sh", "-c", script, pids)
	await(t, "orphans to be", func() bool { return exists(pids) })
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

// TestLeaksKeepsWhatOrphansKeep checks that the lock stays taken while processes of a killed
// holder live on: leaks and show name them, and --fix frees nothing.
func TestLeaksKeepsWhatOrphansKeep(t *testing.T) {
	t.Parallel()
	newStore(t)
	orphans := startOrphans(t, "kept")
	wantLeaks(t, "while orphans keep the lock", nil, "kept kept")
	for _, args := range [][]string{{"leaks"}, {"show", "kept"}} {
		out, _ := snib(t, args...)
		for _, pid := range orphans {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), fmt.Sprintf("pid %d (sleep)", pid)) {
				t.Errorf("snib %v does not name %d: %s", args, pid, out)
			}
		}
		if strings.Contains(out, "lease ends") || strings.Contains(out, "lease left") {
			t.Errorf("snib %v tells of the end of the lease, which ends nothing: %s", args, out)
		}
	}
	wantHeirs(t, orphans)
	if out, code := snib(t, "leaks", "--fix", "--yes"); code != 1 || strings.Contains(out, "freed") {
		t.Errorf("snib leaks --fix: exit code %d: %s", code, out)
	}
	if out, code := snib(t, "run", "-w", "1", "kept", "--", "true"); code != 75 {
		t.Errorf("while orphans of the killed holder live, a run ends with %d: %s", code, out)
	}
	for _, pid := range orphans {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := snib(t, "run", "-w", "20", "kept", "--", "true"); code != 0 {
		t.Errorf("after the end of the orphans, a run ends with %d: %s", code, out)
	}
	wantLeaks(t, "after the end of the orphans", nil)
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
	out, _ := snib(t, "show", "kept", "-o", "json")
	out2, _ := snib(t, "leaks", "-o", "json")
	err, err2 := json.Unmarshal([]byte(out), &shown), json.Unmarshal([]byte(out2), &leaks)
	if err != nil || err2 != nil || len(shown.Holders) != 1 || len(leaks.Leaks) != 1 {
		t.Fatalf("%v, %v: %s%s", err, err2, out, out2)
	}
	for _, h := range []holder{shown.Holders[0], leaks.Leaks[0].Holder} {
		var got []int
		for _, k := range h.Heirs {
			got = append(got, k.PID)
			if k.Label != "sleep" {
				t.Errorf("heir %+v, want a sleep", k)
			}
		}
		slices.Sort(got)
		if !h.Inherited || !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("heirs = %v, inherited %v; want %v: %s", got, h.Inherited, want, out)
		}
	}
}

// TestHeirsThatCannotBeSeen checks that processes that we can't inspect are mentioned.
func TestHeirsThatCannotBeSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	dir := newStore(t)
	startOrphans(t, "kept")
	bin := filepath.Join(t.TempDir(), "snib")
	copyProgram(t, bin)
	open := func(path string, _ os.FileInfo, err error) error { return errors.Join(err, os.Chmod(path, 0o777)) }
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), filepath.Walk(dir, open)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "show", "kept")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Env = append(environ(t), "SNIB_URL=sqlite:"+dir+"/snib/locks.db")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(out)), " "), "a process that can't be seen") {
		t.Errorf("show by a user who may not look into the orphans = %v: %s", err, out)
	}
}
