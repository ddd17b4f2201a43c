package interop_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/peers"
	"github.com/sniblock/snib/internal/livetest"
)

// A language runs scripts of a folder, with the packages of the laboratory's targets in it.
type language func(script string, args ...string) *exec.Cmd

// nodeJS returns ioredis, redlock, and the example for Node.js.
func nodeJS(t *testing.T) language {
	home, dir := install(t, "node-redlock", "node", "../../../../examples/node")
	if err := os.Symlink(filepath.Join(home, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return func(script string, args ...string) *exec.Cmd {
		return exec.Command("node", append([]string{filepath.Join(dir, script)}, args...)...)
	}
}

// python returns redis-py, kazoo, and the example for Python.
func python(t *testing.T) language {
	home, dir := install(t, "redis-py", "python", "../../../../examples/python")
	return func(script string, args ...string) *exec.Cmd {
		cmd := exec.Command("python3", append([]string{filepath.Join(dir, script)}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(home, "packages"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
		return cmd
	}
}

// install installs the packages of a peer, and returns their folder, and one with the files of the
// folder of a language and those of its example.
func install(t *testing.T, peer, language, example string) (home, dir string) {
	t.Helper()
	command, err := peers.Named(peer)[0].Install(t.Context(), func() { t.Logf("installing the packages of %s", peer) })
	if err != nil {
		livetest.Missing(t, language, err.Error())
	}
	dir = t.TempDir()
	files, _ := filepath.Glob(filepath.Join(example, "*.*")) // the pattern is right
	own, _ := filepath.Glob(filepath.Join(language, "*"))    // likewise
	for _, file := range append(files, own...) {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	target := slices.IndexFunc(command, func(arg string) bool { return strings.HasPrefix(filepath.Base(arg), "target.") })
	return filepath.Dir(command[target]), dir
}

// TestNodeRedlock tests node-redlock with ioredis.
func TestNodeRedlock(t *testing.T) { runAgents(t, nodeJS(t), "redlock.mjs") }

// TestNodeExample tests examples/node.
func TestNodeExample(t *testing.T) { runAgents(t, nodeJS(t), "example.mjs") }

// TestPythonExample tests examples/python.
func TestPythonExample(t *testing.T) { runAgents(t, python(t), "agent.py") }

func runAgents(t *testing.T, l language, script string) {
	run(t, func(t *testing.T, addr string) foreignLocker { return startAgent(t, addr, l(script)) })
}

// TestReports runs the programs of the examples beside the command snib.
func TestReports(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "snib")
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", bin, "./cmd/snib") // the tests have compiled most of that
	build.Dir = "../../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	t.Run("Node", func(t *testing.T) { reports(t, bin, nodeJS(t), "report.mjs", "example.mjs") })
	t.Run("Python", func(t *testing.T) { reports(t, bin, python(t), "report.py", "agent.py") })
}

func reports(t *testing.T, bin string, l language, report, agent string) {
	t.Parallel()
	const name = "jobs/report"
	w := newFixture(t)
	url := "redis://" + w.server.Addr()
	snibRun := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), bin, append([]string{"run", "--url", url}, args...)...)
		cmd.Stderr = t.Output()
		return cmd
	}

	// The command holds the lock: the example gives up after 5 s, and leaves the lock alone.
	holder := snibRun(name, "--", "sh", "-c", "echo held; cat")
	in, out := startPiped(t, holder)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("snib run said %q, %v", line, err)
	}
	owner := w.raw.Get(t.Context(), name).Val()
	if out, err := l(report, url).CombinedOutput(); err == nil || !strings.Contains(string(out), "another host writes the report") {
		t.Errorf("%s under the lock of snib run: %v\n%s", report, err, out)
	}
	if got := w.raw.Get(t.Context(), name).Val(); got != owner || owner == "" {
		t.Errorf("after %s, the lock of snib run has the owner %q, want %q", report, got, owner)
	}
	in.Close()
	if err := holder.Wait(); err != nil {
		t.Errorf("snib run: %v", err)
	}

	// The example holds the lock: the command gives up, and leaves the lock alone.
	w.theirs = startAgent(t, w.server.Addr(), l(agent))
	h := w.takeForeign(t, name, longTTL)
	if err := snibRun("--wait", "300ms", name, "--", "true").Run(); exitCode(err) != 75 {
		t.Errorf("snib run under the lock of the example: %v, want exit code 75", err)
	}
	if got := w.raw.Get(t.Context(), name).Val(); got != h.value() {
		t.Errorf("after snib run, the lock of the example has the value %q, want %q", got, h.value())
	}
	if err := h.release(); err != nil {
		t.Errorf("the example can't release: %v", err)
	}

	// The lock is free.
	if out, err := l(report, url).CombinedOutput(); err != nil || string(out) != "page 0\npage 1\npage 2\n" {
		t.Errorf("%s: %v\n%s", report, err, out)
	}
	if err := snibRun("--try", name, "--", "true").Run(); err != nil {
		t.Errorf("snib run of the lock that is free: %v", err)
	}
}

// exitCode returns the exit code of a program that has run, or -1.
func exitCode(err error) int {
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return e.ExitCode()
	}
	return -1
}
