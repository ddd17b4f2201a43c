package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestEnds checks that no process and no folder is left when a run of the lab is interrupted,
// and no process when it is killed.
func TestEnds(t *testing.T) {
	t.Parallel()
	livetest.Binary(t, "redis", "redis-server")
	for _, tt := range []struct {
		signal syscall.Signal
		want   int // exit code, or -1 if the signal ends the process
	}{
		{syscall.SIGINT, 130},
		{syscall.SIGKILL, -1},
	} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tmp := filepath.Join(dir, "tmp")
			if err := os.Mkdir(tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sniblab", "run", "--fault", "pause", "--out", filepath.Join(dir, "out"))
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+tmp)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			const some = 1 + 4*4 // the lab, and four controls, each with a server and three clients
			if !poll(func() bool { return processesIn(t, dir) >= some }) {
				t.Errorf("%d processes run, want %d", processesIn(t, dir), some)
			}
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // its state says the same
			if got := cmd.ProcessState.ExitCode(); got != tt.want {
				t.Errorf("exit code = %d, want %d", got, tt.want)
			}
			if !poll(func() bool { return processesIn(t, dir) == 0 }) {
				t.Error("processes of the run are left")
			}
			if left, err := os.ReadDir(tmp); tt.want >= 0 && (err != nil || len(left) > 0) {
				t.Errorf("the run left %v (%v)", left, err)
			}
		})
	}
}

// TestInterrupted checks that an interrupted run writes what was judged until then.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sniblab", "run", "--no-controls", "-t", "echo hello; cat", "--store", "none", "-t", "snib-sqlite",
		"--fault", "pause", "--for", "1h", "--out", "out")
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the program is not judged
		t.Error(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // its state says the same
	if got := cmd.ProcessState.ExitCode(); got != 130 {
		t.Errorf("exit code = %d, want 130", got)
	}
	var found struct {
		Interrupted bool
		Verdicts    []struct{ Target, Error string }
	}
	text, err := os.ReadFile(filepath.Join(cmd.Dir, "out", "verdicts.json"))
	if err := errors.Join(err, json.Unmarshal(text, &found)); err != nil {
		t.Fatal(err)
	}
	if !found.Interrupted || len(found.Verdicts) == 0 || found.Verdicts[0].Error == "" {
		t.Errorf("verdicts.json has %+v, want that the run was interrupted, and why the first program was not judged", found)
	}
	if page, err := os.ReadFile(filepath.Join(cmd.Dir, "out", "index.html")); err != nil || !strings.Contains(string(page), "This run was interrupted.") {
		t.Errorf("the page does not say that the run was interrupted (%v)", err)
	}
}

// TestInterruptedEarly checks that a run that is interrupted before anything is judged says so,
// and writes nothing.
func TestInterruptedEarly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command("sniblab", "run", "--no-controls", "-t", "snib-sqlite", "--fault", "pause", "--for",
		"1h", "--out", dir)
	var out strings.Builder
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !poll(func() bool { return exists(dir) }) {
		t.Error("it does not begin")
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // its state says the same
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(out.String(), "sniblab: interrupted: nothing was judged yet\n") {
		t.Errorf("exit code = %d, want 130, and that nothing was judged yet: %s", code, &out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the run wrote %v (%v)", left, err)
	}
}

// TestUnread checks that signals end a run whose standard error is full.
func TestUnread(t *testing.T) {
	t.Parallel()
	in, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer full.Close()
	conn, err := full.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Write(func(fd uintptr) bool {
		for err = nil; err == nil; {
			_, err = syscall.Write(int(fd), make([]byte, 1))
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sniblab", "run", "--no-controls", "--for", "1h", "--out", "out")
	cmd.Dir, cmd.Env, cmd.Stderr = t.TempDir(), append(os.Environ(), "PATH=/nowhere"), full // it says which servers are missing
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	if !poll(func() bool { return exists(filepath.Join(cmd.Dir, "out")) }) {
		t.Fatal("it does not begin")
	}
	over := poll(func() bool {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if !over {
		t.Error("Ctrl-C does not end it")
	}
}

// TestStores judges snib on each store with one server, after a restart of it. "make lab" does all
// faults, on all stores.
func TestStores(t *testing.T) {
	t.Parallel()
	judgeEach(t, map[string]func(testing.TB) string{
		"snib-postgres": pgtest.Program, "snib-postgres-sessions": pgtest.Program, "snib-mysql": mysqltest.Program, "snib-etcd": etcdtest.Built,
		"snib-zookeeper": zktest.Java,
	}, "--for", "1ms", "--fault", "store-restart")
}

// TestAccepts has the lab judge snib by plans that reject a holder that ends too late, and a
// release that ends another's hold.
func TestAccepts(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]string{
		"LateEnd":     "cut:A:1,cut:B:2",
		"LateRelease": "slow-release:A:1,slow-release:B:2,slow-release:C:3,slow-release:A:4",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judgeEach(t, map[string]func(testing.TB) string{"snib-redis": redistest.Program}, "--for", "1ms", "--plan", plan)
		})
	}
}

// judgeEach judges targets, each of which needs a program.
func judgeEach(t *testing.T, needs map[string]func(testing.TB) string, args ...string) {
	for name, have := range needs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Dir(have(t)) + ":" + os.Getenv("PATH") // the lab builds no etcd
			cmd := exec.Command("sniblab", append([]string{"run", "--no-controls", "--json", "--target", name}, args...)...)
			cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PATH="+path)
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestMatrix runs the lab with the flags that SNIB_LAB has: see "make lab". Libraries of others
// may be rejected.
func TestMatrix(t *testing.T) {
	flags := os.Getenv("SNIB_LAB")
	if flags == "" {
		t.Skip("it takes minutes: see make lab")
	}
	cmd := exec.Command("sniblab", append([]string{"run"}, strings.Fields(flags)...)...)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PATH="+filepath.Dir(etcdtest.Built(t))+":"+os.Getenv("PATH")) // the lab builds no etcd
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	if err == nil {
		return
	}
	if cmd.ProcessState.ExitCode() != 1 { // a target was rejected, maybe one of others
		t.Fatalf("sniblab run %s: %v", flags, err)
	}
	_, dir, _ := strings.Cut(flags, "--out ")
	dir, _, _ = strings.Cut(dir, " ")
	text, err := os.ReadFile(filepath.Join(dir, "verdicts.json"))
	var found struct {
		Verdicts []struct {
			Target, Library, Text string
			Control, Rejected     bool
		}
	}
	if err := errors.Join(err, json.Unmarshal(text, &found)); err != nil {
		t.Fatal(err)
	}
	for _, c := range found.Verdicts {
		if c.Rejected && !c.Control && c.Library == "" {
			t.Errorf("%s is rejected: %s", c.Target, c.Text)
		}
	}
}

// TestPage runs the target of docs/lab.md as it stands there, and checks that it can be
// rejected: without its call of flock, two clients hold the lock at once.
func TestPage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		livetest.Missing(t, "python", "python3 is not installed")
	}
	page, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```python\n")
	program, _, found := strings.Cut(after, "```")
	broken := strings.Replace(program, "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", 1)
	if !found || broken == program {
		t.Fatal("docs/lab.md has no program with flock")
	}
	for text, want := range map[string]string{program: "safe", broken: "overlap"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "lock.py"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sniblab", "run", "--no-controls", "--json", "--target", "python3 ./lock.py", "--store", "file",
				"--fault", "pause,kill", "--for", "1ms")
			cmd.Dir = dir
			began := time.Now()
			out, err := cmd.Output()
			var verdict struct{ Verdict, Error string }
			if json.Unmarshal(out, &verdict) != nil || verdict.Verdict != want {
				t.Errorf("after %v: %s, %v, want the verdict %s", time.Since(began), out, err, want)
			}
		})
	}
}
