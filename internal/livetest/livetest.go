// Package livetest starts real servers for tests, and breaks the network to them. Each kind of
// server has its own package below this one. This package contains what all of them need: a
// free port, a process that can be hung, killed and restarted, a [Proxy] that can lose what it
// should deliver, and a [Child], which is another process of the test program. It also has what the
// tests of backends do with a driver: acquire a lock, wait for one, keep one.
//
//	node := redistest.Single(t)
//	proxy := livetest.NewProxy(t, node.Addr())
//	client := dial(t, proxy.Addr())
//	node.Hang()           // it keeps its connections, and answers nobody
//	heal := proxy.Sever() // it lives, and nobody reaches it
//
// # Failures
//
// Servers and proxies belong to the test that started them. They report errors to it, so
// their methods return none, and must be called where the test's Fatal may be called.
// They end with the test, or with its process, however that ends. If the test fails, its
// log contains the output of its servers.
//
// # Servers that are not installed
//
// A test whose server is not installed is skipped. It fails instead if the environment variable
// SNIB_REQUIRE names the server. The variable is a comma-separated list, such as
// "redis,postgres". Servers run on Linux only.
package livetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// requireVar is the environment variable that lists the servers that must be installed.
const requireVar = "SNIB_REQUIRE"

// Binary returns the path of a server's program. It searches the PATH and then the
// folders that match one of the patterns. It skips t if it finds nothing, or fails
// it if SNIB_REQUIRE names the server.
func Binary(t testing.TB, server, program string, patterns ...string) string {
	t.Helper()
	path, err := find(program, patterns)
	if err != nil {
		Missing(t, server, err.Error())
	}
	return path
}

func find(program string, patterns []string) (string, error) {
	if unsupported != "" {
		return "", fmt.Errorf("%s", unsupported)
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(pattern, program))
		if err != nil {
			return "", err
		}
		slices.Sort(found)
		// Folders are named after versions, so the latest comes first.
		for _, path := range slices.Backward(found) {
			if path, err := exec.LookPath(path); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", program)
}

// Missing skips t with the reason why, or fails it if SNIB_REQUIRE names the server.
func Missing(t testing.TB, server, why string) {
	t.Helper()
	for e, ok := t.(envTB); ok; e, ok = t.(envTB) {
		t = e.TB
	}
	if _, ok := t.(*outside); ok {
		panic(failure{&MissingError{server, why}})
	}
	for name := range strings.SplitSeq(os.Getenv(requireVar), ",") {
		if strings.TrimSpace(name) == server {
			t.Fatalf("%s, but %s=%s", why, requireVar, os.Getenv(requireVar))
		}
	}
	t.Skipf("%s (%s=%s makes that a failure)", why, requireVar, server)
}

// Long skips a test that takes long unless SNIB_LONG is set; "make long" runs it.
// Such a test has a shorter counterpart.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("SNIB_LONG") == "" {
		t.Skip("it takes long (make long)")
	}
}

// Patience is how long tests wait for an event that comes within milliseconds on an idle machine.
// It only ends a test that would wait for ever, so no busy machine may need as much.
const Patience = 2 * time.Minute

// startTimeout is how long a server may take to start. That is seconds on an idle machine: a JVM,
// a database that recovers.
const startTimeout = 2 * time.Minute

// PollPause returns how long to wait after a check of a condition that took so long. A check may
// cost the server a connection, or a process, so all checks together take at most a third of a
// processor.
func PollPause(took time.Duration) time.Duration {
	return min(max(5*time.Millisecond, 2*took), 200*time.Millisecond)
}

// Must fails t if err is not nil. What says what could not be done.
func Must(t testing.TB, err error, what string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// Want reports an error of t if got does not match want, or if want is nil and got is not.
func Want(t testing.TB, got, want error, what string, args ...any) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s = %v, want %v", fmt.Sprintf(what, args...), got, want)
	}
}

// Await calls try until it returns nil. If that takes longer than [Patience], t fails with
// try's last error; what describes what Await waits for.
func Await(t testing.TB, what string, try func() error) {
	t.Helper()
	Must(t, poll(Patience, nil, try), "no %s within %v", what, Patience)
}

// Lateness measures how late timers of this process are, until t ends. The function that it returns
// may be called at any time, and returns the maximum so far: a delay of up to this much can be the
// fault of the machine.
func Lateness(t testing.TB) func() time.Duration {
	const pause = time.Millisecond
	var most, sleepsSince atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	start := time.Now()
	late := func() int64 { return int64(time.Since(start)-pause) - sleepsSince.Load() }
	go func() {
		defer close(ended)
		for {
			sleepsSince.Store(int64(time.Since(start)))
			select {
			case <-done:
				return
			case <-time.After(pause):
				most.Store(max(most.Load(), late()))
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended })
	return func() time.Duration { return time.Duration(max(most.Load(), late())) }
}

// Slack returns ten times the lateness. By that much longer than a time limit may take what several
// processes do together, and the machine is at fault.
func Slack(t testing.TB) func() time.Duration {
	late := Lateness(t)
	return func() time.Duration { return 10 * late() }
}

// poll calls try until it returns nil, until limit is over, or until stop is closed. It
// returns try's last error.
func poll(limit time.Duration, stop <-chan struct{}, try func() error) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		began := time.Now()
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-stop:
			return err
		case <-timeout.C:
			return err
		case <-time.After(PollPause(time.Since(began))):
		}
	}
}
