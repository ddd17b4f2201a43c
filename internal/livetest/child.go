package livetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// jobVar is the environment variable that makes a process of a test program a
// [Child]. It contains the child's job.
const jobVar = "SNIB_TEST_JOB"

// Main runs the tests of a package, or does the job of a [Child], and returns the
// code to exit with:
//
//	func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do)) }
//
// do gets the job that was passed to [StartChild], decoded from JSON, and a context that is
// done when the child is told to end or the tests end. The child reports to the tests by [Say];
// Main reports an error of do as "error" and its text. After the tests, it calls atEnd,
// such as the End of a [Shared].
func Main[Job any](m *testing.M, do func(Job, context.Context) error, atEnd ...func()) int {
	text, child := os.LookupEnv(jobVar)
	if !child {
		code := m.Run()
		for _, f := range atEnd {
			f()
		}
		return code
	}
	_ = os.Unsetenv(jobVar) // processes that the job starts are not children of the tests
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var job Job
	err := json.Unmarshal([]byte(text), &job)
	if err == nil {
		err = do(job, ctx)
	}
	if err != nil {
		Say("error", err)
		return 1
	}
	return 0
}

// Say sends a line to the tests: a word, and the rest, which [Child.Expect] returns.
func Say(word string, what ...any) {
	line := strings.TrimSuffix(fmt.Sprintln(what...), "\n")
	fmt.Fprintln(os.Stdout, strings.TrimSpace(word+" "+strings.ReplaceAll(line, "\n", " ")))
}

// A Child is another process of the test program, which does a job. It can be killed and
// stopped like the processes of users. It is killed when its test ends. See [Main].
type Child struct {
	t        testing.TB
	cmd      *exec.Cmd
	stdin    io.Closer
	lines    chan string
	waitOnce sync.Once
	ended    chan struct{} // closed by what waitOnce does
}

// StartChild starts a child with a job, which must be encodable as JSON.
func StartChild(t testing.TB, job any) *Child {
	t.Helper()
	text, err := json.Marshal(job)
	Must(t, err, "job of a child")
	exe, err := os.Executable()
	Must(t, err, "start a child")
	c := &Child{t: t, cmd: exec.Command(exe), lines: make(chan string, 100), ended: make(chan struct{})}
	// Otherwise a race-enabled process takes a second to end.
	c.cmd.Env = append(os.Environ(), jobVar+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = os.Stderr
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	Must(t, errors.Join(err1, err2, StartTied(c.cmd, c.ended)), "start a child")
	c.stdin = in
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
		close(c.lines)
	}()
	t.Cleanup(c.Kill)
	return c
}

// Expect reads the next line of the child, which must begin with the word, and
// returns the rest of the line.
func (c *Child) Expect(word string) string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatalf("the child ended, want it to say %q", word)
		}
		got, rest, _ := strings.Cut(line, " ")
		if got != word {
			c.t.Fatalf("the child says %q, want %q", line, word)
		}
		return rest
	case <-time.After(Patience):
		c.t.Fatalf("the child does not say %q within %v", word, Patience)
	}
	return ""
}

// Number is [Child.Expect] for a line whose rest is a number.
func (c *Child) Number(word string) uint64 {
	c.t.Helper()
	text := c.Expect(word)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		c.t.Fatalf("the child says %q after %q, want a number", text, word)
	}
	return n
}

// End tells the child to end, and does not wait for it.
func (c *Child) End() { _ = c.stdin.Close() } // fails if the child has ended by itself

// Wait waits until the child has ended by itself. The test fails if the job returned an error.
func (c *Child) Wait() {
	c.t.Helper()
	c.waitOnce.Do(func() {
		defer close(c.ended)
		late := time.AfterFunc(Patience, func() { _ = c.cmd.Process.Kill() })
		defer late.Stop()
		last := ""
		for line := range c.lines { // all lines must be read before Wait closes the pipe
			last = line
		}
		if err := c.cmd.Wait(); err != nil {
			c.t.Fatalf("the child ended with %v; the last that it said is %q", err, last)
		}
	})
}

// Signal sends the child a signal.
func (c *Child) Signal(sig os.Signal) {
	c.t.Helper()
	Must(c.t, c.cmd.Process.Signal(sig), "send %v to the child", sig)
}

// Hang stops the child and its descendants (SIGSTOP), and waits until all threads stand still.
func (c *Child) Hang() {
	c.t.Helper()
	Must(c.t, Hang(c.cmd.Process.Pid), "stop the child")
}

// Kill kills the child with SIGKILL, and returns when it is gone.
func (c *Child) Kill() {
	c.waitOnce.Do(func() {
		defer close(c.ended)
		_ = c.cmd.Process.Kill() // it may have ended by itself
		_ = c.stdin.Close()
		_ = c.cmd.Wait() // it was killed
	})
}
