package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// programVar makes this test binary one of the programs below.
const programVar = "SNIB_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(programVar) {
	case "exit": // exits with 7
		os.Exit(7)
	case "interrupted": // says in FILE that it is ready, and exits with 3 on SIGINT or Ctrl-Break
		sigs := make(chan os.Signal, 1)
		signal.Notify(sigs, os.Interrupt)
		publish(os.Args[1], os.Getpid())
		<-sigs
		os.Exit(3)
	case "parent": // starts a process that says its pid in FILE and stays, and stays itself
		startProgram("sleep", os.Args[1])
		time.Sleep(time.Hour) // until it is killed
	case "leave": // starts the same process, and ends when it is ready
		startProgram("sleep", os.Args[1])
		for !exists(os.Args[1]) {
			time.Sleep(time.Millisecond)
		}
		os.Exit(0)
	case "sleep":
		publish(os.Args[1], os.Getpid())
		time.Sleep(time.Hour) // until it is killed
	case "supervisor": // starts "parent" as a Child, says its pid in FILE.child, and stays
		c := startChild("parent", os.Args[1])
		publish(os.Args[1]+".child", c.pid)
		time.Sleep(time.Hour) // until it is killed
	}
	os.Exit(m.Run())
}

// publish writes a number to a file that does not exist yet, at once.
func publish(file string, n int) {
	if err := errors.Join(os.WriteFile(file+".new", []byte(strconv.Itoa(n)), 0o600), os.Rename(file+".new", file)); err != nil {
		panic(err)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// startProgram starts one of the programs of TestMain as an ordinary process.
func startProgram(name, file string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], file)
	cmd.Env = append(os.Environ(), programVar+"="+name)
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

// startChild starts one of the programs of TestMain under supervision.
func startChild(name, file string) *Child {
	c, err := Start(Program{Path: os.Args[0], Args: []string{os.Args[0], file},
		Env: append(os.Environ(), programVar+"="+name)})
	if err != nil {
		panic(err)
	}
	return c
}

// supervise is startChild for a test. Nothing of the program outlives the test.
func supervise(t *testing.T, name, file string) *Child {
	t.Helper()
	c := startChild(name, file)
	t.Cleanup(func() {
		c.Signal(syscall.SIGKILL)
		if !c.Vanish(livetest.Patience) {
			t.Errorf("a process of %s is left", name)
		}
	})
	return c
}

// awaitPID waits until a program has said a pid in file.
func awaitPID(t *testing.T, file string) (pid int) {
	t.Helper()
	livetest.Await(t, "pid in "+filepath.Base(file), func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(string(text))
		return err
	})
	return pid
}

// awaitEnd returns how the program ended.
func awaitEnd(t *testing.T, c *Child) syscall.WaitStatus {
	t.Helper()
	select {
	case e := <-c.Events():
		if e.Err != nil {
			t.Fatalf("event with the error %v, want none", e.Err)
		}
		return e.Status
	case <-time.After(livetest.Patience):
		t.Fatal("the program has not ended")
		panic("not reached")
	}
}

func TestExitCode(t *testing.T) {
	c := supervise(t, "exit", "")
	if s := awaitEnd(t, c); !s.Exited() || s.ExitStatus() != 7 {
		t.Errorf("the program ended with %v, want exit code 7", s)
	}
	if !c.Vanish(livetest.Patience) {
		t.Error("a process lives after the end of the only one")
	}
}

// TestInterrupt asks a program to end, which it does in its own way.
func TestInterrupt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	c := supervise(t, "interrupted", file)
	awaitPID(t, file)
	c.Signal(syscall.SIGINT)
	if s := awaitEnd(t, c); !s.Exited() || s.ExitStatus() != 3 {
		t.Errorf("the program ended with %v, want exit code 3", s)
	}
}

// TestKill kills a program and the process that it started.
func TestKill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	c := supervise(t, "parent", file)
	if pid := awaitPID(t, file); Gone(pid) {
		t.Errorf("Gone(%d) = true for a process that runs", pid)
	}
	if !c.Alive() {
		t.Error("Alive = false, want true for two processes that run")
	}
	c.Signal(syscall.SIGKILL)
	// Unix reports the signal, and Windows the exit code that a shell of Unix shows for it.
	if s := awaitEnd(t, c); !s.Signaled() && s.ExitStatus() != 137 {
		t.Errorf("the program ended with %v, want the signal KILL or the exit code 137", s)
	}
	if !c.Vanish(livetest.Patience) {
		t.Error("a process lives after the kill")
	}
}

// TestLeaveInBackground checks that a process that the program leaves behind is known, and lives.
func TestLeaveInBackground(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	c := supervise(t, "leave", file)
	pid := awaitPID(t, file)
	if s := awaitEnd(t, c); !s.Exited() || s.ExitStatus() != 0 {
		t.Errorf("the program ended with %v, want exit code 0", s)
	}
	if !c.Alive() || Gone(pid) {
		t.Errorf("Alive = %v, Gone = %v, want true and false for the process that was left", c.Alive(), Gone(pid))
	}
}

// TestAliveWhileForking runs a program that always lives, but each of its processes only until it
// has started the next one. Another process was below us before.
func TestAliveWhileForking(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere, the group has them all")
	}
	before := startProgram("sleep", filepath.Join(t.TempDir(), "before"))
	stop := filepath.Join(t.TempDir(), "stop")
	c, err := Start(Program{Path: "/bin/sh", Args: []string{"sh", "-c", `sh -c "$f" "$0"`, stop},
		Env: []string{`f=[ -e "$0" ] || sh -c "$f" "$0" &`}})
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, c)
	for i := range 50 {
		if !c.Alive() {
			t.Errorf("Alive = false in call %d, while the program lives", i)
			break
		}
	}
	publish(stop, 0)
	_ = before.Process.Kill() // it lives
	if !c.Vanish(livetest.Patience) {
		t.Error("a process is left")
	}
}

// TestGone asks for a process that has ended: on Linux before it is collected, and then after.
func TestGone(t *testing.T) {
	cmd := startProgram("exit", "")
	if Gone(os.Getpid()) {
		t.Error("Gone = true for this process")
	}
	if runtime.GOOS == "linux" {
		livetest.Await(t, "the end of the process", func() error {
			if !Gone(cmd.Process.Pid) {
				return errors.New("Gone = false")
			}
			return nil
		})
	}
	_ = cmd.Wait() // its exit code is 7
	if !Gone(cmd.Process.Pid) {
		t.Error("Gone = false for a process that has ended")
	}
}
