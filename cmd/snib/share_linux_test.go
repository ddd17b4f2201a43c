package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTwoUsers checks that two users can share a file if its creator allows it, whatever their
// umask, and that otherwise the second one learns whose it is.
func TestTwoUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	dir := newStore(t)
	bin := filepath.Join(dir, "snib")
	copyProgram(t, bin)
	const group = 64042
	as := func(uid uint32, args ...string) *exec.Cmd {
		cmd := exec.Command("sh", append([]string{"-c", `umask 077; exec "$@"`, "sh", bin}, args...)...)
		cmd.Dir = "/"
		cmd.Env = append(environ(t), "XDG_STATE_HOME=/nonexistent")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{group}}}
		return cmd
	}
	if out, err := as(64001, "--version").CombinedOutput(); err != nil {
		t.Skipf("another user can't run the test program: %v: %s", err, out)
	}
	folder := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 0, group), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path + "/locks.db"
	}
	for name, mode := range map[string]os.FileMode{"plain": 0o770, "setgid": 0o770 | os.ModeSetgid} {
		url := "sqlite:" + folder(name, mode)
		if out, err := as(64001, "lock", "-u", url+"?mode=0660", "deploy", "--ttl", "1h").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		checkFailure(t, as(64002, "run", "-u", url, "-n", "deploy", "--", "true"), 75, "deploy is taken")
		if out, err := as(64002, "run", "-u", url, "other", "--", "true").CombinedOutput(); err != nil {
			t.Errorf("the second user's run = %v: %s", err, out)
		}
		out, err := as(64002, "doctor", url).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "shared with the group 64042") {
			t.Errorf("doctor by the second user = %v: %s", err, out)
		}
		stranger := as(64003, "ls", "-u", url)
		stranger.SysProcAttr.Credential.Groups = nil
		checkFailure(t, stranger, 77, "permission denied")
	}
	url := "sqlite:" + folder("own", 0o770)
	if out, err := as(64001, "run", "-u", url, "deploy", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, command := range [][]string{{"run", "-u", url, "deploy", "--", "true"}, {"ls", "-u", url}} {
		checkFailure(t, as(64002, command...), 77, "belongs to uid 64001 and gid", "mode 0660 would share it")
	}
}

// TestStateFolder checks that the default file is in a folder that only its user can open, and not
// used in one that others can write to, or own: they could free any lock.
func TestStateFolder(t *testing.T) {
	dir := newStore(t)
	folder := filepath.Join(dir, "snib")
	mustSnib(t, "run", "deploy", "--", "true")
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v, want mode 0700", info, err)
	}
	if err := os.Chmod(folder, 0o770); err != nil {
		t.Fatal(err)
	}
	checkFailure(t, command(t, "snib", "run", "deploy", "--", "true"), 78, "has mode 0770", "chmod 700")
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, code := snib(t, "run", "deploy", "--", "true"); code != 0 {
		t.Errorf("in a folder that others may read, a run ends with %d: %s", code, out)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(folder, 65534, -1); err != nil {
		t.Fatal(err)
	}
	checkFailure(t, command(t, "snib", "run", "deploy", "--", "true"), 78, "belongs to uid 65534")
}
