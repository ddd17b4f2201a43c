// Package livetest starts real servers for tests, and breaks the way to them. Each kind of server has a package below this
// one; what all of them need is here: a free port, a process that can be hung, killed and restarted, a [Proxy] that loses
// what it should deliver, and a [Child], which is another process of the test itself.
//
//	node := redistest.Single(t)
//	proxy := livetest.NewProxy(t, node.Addr())
//	client := dial(t, proxy.Addr())
//	node.Hang()           // it keeps its connections, and answers nobody
//	heal := proxy.Sever() // it lives, and nobody reaches it
//
// # Failures
//
// Servers and proxies belong to the test that they were made with. They report to it, so their methods return no errors, and
// are called where its Fatal may be called. They end with it, or when its process does, however that comes about. If it
// fails, what its servers wrote is in its log.
//
// # Servers that are not installed
//
// A test whose server is not installed is skipped. It fails instead if the environment variable SNIB_REQUIRE names the server:
// it is a list with commas, such as "redis,postgres". Servers run on Linux only.
package livetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// requireVar names the environment variable with the servers that must be there.
const requireVar = "SNIB_REQUIRE"

// Binary returns the path of a server's program, which is looked for in the PATH and then in the folders that match one of
// the patterns. It skips t if it finds none, or fails it if SNIB_REQUIRE names the server.
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
		for _, path := range slices.Backward(found) { // folders are named after versions: the latest
			if path, err := exec.LookPath(path); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", program)
}

// Missing skips t because of why, or fails it if it was said that the server is there.
func Missing(t testing.TB, server, why string) {
	t.Helper()
	for name := range strings.SplitSeq(os.Getenv(requireVar), ",") {
		if strings.TrimSpace(name) == server {
			t.Fatalf("%s, but %s=%s", why, requireVar, os.Getenv(requireVar))
		}
	}
	t.Skipf("%s (%s=%s makes that a failure)", why, requireVar, server)
}

// Long skips a test that takes long, and whose short form is another one, unless SNIB_LONG is set: "make long" runs it.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("SNIB_LONG") == "" {
		t.Skip("it takes long (make long)")
	}
}

// Patience is how long servers have for what takes them milliseconds on a machine that is not busy.
const Patience = 20 * time.Second

// tick is how often a condition is looked at.
const tick = 2 * time.Millisecond

// Await calls try until it returns nil. If it does not within [Patience], t fails with try's last error; what says what was
// waited for.
func Await(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := poll(nil, try); err != nil {
		t.Fatalf("no %s within %v: %v", what, Patience, err)
	}
}

// Lateness measures, until the returned function is called, by how much timers of this process are late at the most: so much of a lateness
// is the machine's and not ours.
func Lateness() (stop func() time.Duration) {
	done, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			began := time.Now()
			select {
			case <-done:
				worst <- max(most, time.Since(began)-time.Millisecond)
				return
			case <-time.After(time.Millisecond):
				most = max(most, time.Since(began)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-worst
	}
}

// poll calls try until it returns nil, or for as long as [Patience], or until stop is closed. It returns try's last error.
func poll(stop <-chan struct{}, try func() error) error {
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-stop:
			return err
		case <-timeout.C:
			return err
		case <-ticks.C:
		}
	}
}
