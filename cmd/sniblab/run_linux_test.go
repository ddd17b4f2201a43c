package main

import (
	"encoding/json"
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

// TestEnds checks that no process and no folder is left when a run of the lab, or a demo in which a
// client waits, is interrupted, and no process when it is killed.
func TestEnds(t *testing.T) {
	t.Parallel()
	livetest.Binary(t, "redis", "redis-server")
	for _, program := range []struct {
		name, args string
		processes  int    // so many run
		says       string // when it is interrupted
	}{
		{"Run", "run --fault pause", 1 + 4*4, ""}, // the lab, and four controls, each with a server and three clients
		{"Demo", "demo setnx-expire", 3, "waits for the lock"},
	} {
		for _, end := range []struct {
			signal syscall.Signal
			want   int // exit code, or -1 if the signal ends the process
		}{
			{syscall.SIGINT, 130},
			{syscall.SIGKILL, -1},
		} {
			t.Run(program.name+"/"+end.signal.String(), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				tmp := filepath.Join(dir, "tmp")
				if err := os.Mkdir(tmp, 0o700); err != nil {
					t.Fatal(err)
				}
				out, err := os.Create(filepath.Join(dir, "out"))
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				cmd := exec.Command("sniblab", strings.Fields(program.args)...)
				cmd.Dir, cmd.Stdout, cmd.Env = dir, out, append(os.Environ(), "TMPDIR="+tmp)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if !poll(func() bool {
					said, _ := os.ReadFile(out.Name()) // it exists
					return strings.Contains(string(said), program.says) && processesIn(t, dir) >= program.processes
				}) {
					t.Errorf("%d processes run, want %d", processesIn(t, dir), program.processes)
				}
				if err := cmd.Process.Signal(end.signal); err != nil {
					t.Error(err)
				}
				_ = cmd.Wait() // its state says the same
				if got := cmd.ProcessState.ExitCode(); got != end.want {
					t.Errorf("exit code = %d, want %d", got, end.want)
				}
				if !poll(func() bool { return processesIn(t, dir) == 0 }) {
					t.Error("processes are left")
				}
				if left, err := os.ReadDir(tmp); end.want >= 0 && (err != nil || len(left) > 0) {
					t.Errorf("%v are left (%v)", left, err)
				}
			})
		}
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

// TestStores judges snib on each store with one server, after a restart of it. "make lab" does all
// faults, on all stores.
func TestStores(t *testing.T) {
	t.Parallel()
	judgeEach(t, map[string]func(testing.TB) string{
		"snib-postgres": pgtest.Program, "snib-postgres-sessions": pgtest.Program, "snib-mysql": mysqltest.Program, "snib-etcd": etcdtest.Built,
		"snib-zookeeper": zktest.Java,
	}, "--for", "1ms", "--fault", "store-restart")
}

// TestAccepts has the lab judge snib under faults that reject a holder that ends too late, and a
// release that ends another's hold.
func TestAccepts(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"cut", "slow-release"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			judgeEach(t, map[string]func(testing.TB) string{"snib-redis": redistest.Program}, "--for", "1ms", "--fault", fault)
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
	cmd := exec.Command("sniblab", append([]string{"run", "--json"}, strings.Fields(flags)...)...)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PATH="+filepath.Dir(etcdtest.Built(t))+":"+os.Getenv("PATH")) // the lab builds no etcd
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for verdicts := json.NewDecoder(out); ; {
		var v verdictJSON
		if verdicts.Decode(&v) != nil {
			break
		}
		t.Logf("%-22s %-40s %5d acquired, faults %v", v.Target, v.Text+v.Error, v.Acquired, v.Faults)
		switch {
		case !v.Rejected || v.Control:
		case strings.HasPrefix(v.Target, ownGroup+"-"):
			t.Errorf("%s is rejected: %s\n%s", v.Target, v.Evidence, v.Repeat)
		default:
			t.Logf("%s is rejected: %s\n%s", v.Target, v.Evidence, v.Repeat)
		}
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != exitRejected {
		t.Errorf("sniblab run %s: %v", flags, err)
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
