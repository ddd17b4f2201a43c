package interop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// installations is the folder of the packages that other languages need. TestMain removes it.
var installations = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "interop-") })

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := installations(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// A language runs scripts of a folder, in which the packages that they need are installed.
type language struct {
	dir     string
	command func(script string, args ...string) *exec.Cmd
}

// nodeJS returns ioredis, redlock, and the example for Node.js.
func nodeJS(t *testing.T) language {
	t.Helper()
	node := livetest.Binary(t, "node", "node")
	livetest.Binary(t, "node", "npm")
	dir, err := installNode()
	if err != nil {
		livetest.Missing(t, "node", err.Error())
	}
	return language{dir, func(script string, args ...string) *exec.Cmd {
		return exec.Command(node, append([]string{filepath.Join(dir, script)}, args...)...)
	}}
}

var installNode = sync.OnceValues(func() (dir string, err error) {
	const peers = "../peers/node/" // the lab has the same packages
	return install("node", []string{peers + "package.json", peers + "package-lock.json", "../../../../examples/node/lock.mjs", "../../../../examples/node/report.mjs"},
		"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
})

// python returns redis-py, kazoo, and the example for Python.
func python(t *testing.T) language {
	t.Helper()
	python := livetest.Binary(t, "python", "python3")
	dir, err := installPython()
	if err != nil {
		livetest.Missing(t, "python", err.Error())
	}
	return language{dir, func(script string, args ...string) *exec.Cmd {
		cmd := exec.Command(python, append([]string{filepath.Join(dir, script)}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(dir, "packages"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
		return cmd
	}}
}

var installPython = sync.OnceValues(func() (dir string, err error) {
	const example = "../../../../examples/python/"
	return install("python", []string{example + "redis_lock.py", example + "report.py", example + "requirements.txt"},
		"python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--require-hashes",
		"--target", "packages", "--requirement", "requirements.txt", "--requirement", "kazoo.txt")
})

// install runs a package manager in a new folder, which has the files of the folder of a language
// and further files.
func install(language string, files []string, command ...string) (dir string, err error) {
	root, err := installations()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, language)
	if err := os.CopyFS(dir, os.DirFS(language)); err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s failed: %w\n%s", strings.Join(command[:4], " "), err, out)
	}
	return dir, nil
}

// TestNodeRedlock tests node-redlock with ioredis.
func TestNodeRedlock(t *testing.T) { runAgents(t, nodeJS(t), "redlock.mjs") }

// TestNodeExample tests examples/node.
func TestNodeExample(t *testing.T) { runAgents(t, nodeJS(t), "example.mjs") }

// TestPythonExample tests examples/python.
func TestPythonExample(t *testing.T) { runAgents(t, python(t), "agent.py") }

func runAgents(t *testing.T, l language, script string) {
	run(t, func(t *testing.T, addr string) foreignLocker { return startAgent(t, addr, l.command(script)) })
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
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("snib run said %q, %v", line, err)
	}
	owner := w.raw.Get(t.Context(), name).Val()
	if out, err := l.command(report, url).CombinedOutput(); err == nil || !strings.Contains(string(out), "another host writes the report") {
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
	w.theirs = startAgent(t, w.server.Addr(), l.command(agent))
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
	if out, err := l.command(report, url).CombinedOutput(); err != nil || string(out) != "page 0\npage 1\npage 2\n" {
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
