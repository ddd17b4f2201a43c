package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// redisStore gives the test its own Redis, and a folder.
func redisStore(t *testing.T) (node *redistest.Node, dir string) {
	t.Helper()
	node, dir = redistest.Single(t).Used(), newStore(t)
	setenv(t, "SNIB_URL", "redis://"+node.Addr())
	return node, dir
}

// onSQLiteAndRedis runs a test on two stores, which end the lease of a dead holder in different
// ways.
func onSQLiteAndRedis(t *testing.T, run func(t *testing.T, store string)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { newStore(t); run(t, "SQLite") })
	t.Run("Redis", func(t *testing.T) { redisStore(t); run(t, "Redis") })
}

// TestRedisGone kills the server, or hangs it, under a run. The command and snib must end
// before the end of the lease that the server may still remember.
func TestRedisGone(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	slack := livetest.Slack(t)
	tests := []struct {
		name    string
		gone    func(*redistest.Node)
		message string
	}{
		{"Killed", func(n *redistest.Node) { n.Kill() }, "its lease can't be renewed: "},
		{"Hung", func(n *redistest.Node) { n.Hang() }, "the store does not answer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node, dir := redisStore(t)
			log := filepath.Join(dir, "signals")
			p := start(t, "snib", "run", "--ttl", ttl.String(), "name", "--", "sigs", log, "terminated")
			awaitText(t, log, "ready")
			var child int
			if _, err := fmt.Sscanf(read(log), "ready %d", &child); err != nil {
				t.Fatal(err)
			}
			// After the first renewal, the lease of the grant ends before that of the renewal.
			time.Sleep(ttl / 2)
			tt.gone(node)
			began := time.Now()
			awaitText(t, log, "terminated")
			if code := p.wait(); code != 79 {
				t.Errorf("exit code = %d, want 79: %s", code, p.out.String())
			}
			if took := modTime(t, log).Sub(began); took > ttl+slack() {
				t.Errorf("the command was ended %v after the server, want within %v", took, ttl)
			}
			if !isDead(child) {
				t.Errorf("the child is still there")
			}
			first, second, _ := strings.Cut(p.out.String(), "\n")
			if !strings.HasPrefix(first, "snib: about to lose name: ") || !strings.Contains(first, tt.message) ||
				!strings.HasPrefix(second, "snib: warning: name could not be released") {
				t.Errorf("messages = %q and %q, want %q and a warning", first, second, tt.message)
			}
		})
	}
}

// modTime returns when a file was last written, by the system's clock, however late we look.
func modTime(t *testing.T, file string) time.Time {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// TestRedisComesBack kills a server that keeps its data on disk. The run must go on if
// the server is back in time.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	node := redistest.Single(t, "appendonly yes", "appendfsync always").Used()
	newStore(t)
	setenv(t, "SNIB_URL", "redis://"+node.Addr())
	p, stop := startHolder(t, "name", "-v", "--ttl", "20s")
	node.Kill()
	p.awaitOutput("was not renewed") // after a third of the TTL
	node.Restart()
	await(t, "renewal", func() bool { return heldFor(t, "name") > 0 })
	if code := stop(); code != 0 {
		t.Errorf("exit code = %d, want 0: %s", code, p.out.String())
	}
}

// TestSentinelFailover kills the master under a run. The run must go on with the new master,
// which must grant nothing else while it may not know all holds: the old one may have granted a
// lease of 19 s just before. A longer one would make the grace longer, and the Sentinels may need
// several elections.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	s.Master().Used()
	newStore(t)
	setenv(t, "SNIB_URL", "redis+sentinel://"+strings.Join(s.Sentinels(), ",")+"/"+s.MasterName()+"?allow-split-brain=on&grace-floor=1s")
	p, stop := startHolder(t, "name", "-v", "--ttl", "19s")
	s.WaitForReplicas()
	killed := time.Now()
	s.WaitForFailover(s.KillMaster())
	began := time.Now()
	livetest.Await(t, "grace", func() error {
		if _, code := snib(t, "run", "-n", "--ttl", "1s", "other", "--", "true"); code != 69 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	for ended := false; !ended; { // behind Sentinel, the grace lasts at least 20 s
		sent := time.Now()
		if time.Since(began) > 20*time.Second+testTimeout {
			t.Fatal("the grace has no end")
		}
		out, code := snib(t, "run", "-n", "--ttl", "1s", "other", "--", "true")
		if code == 69 && !strings.Contains(out, "other may be taken: the store restarted or failed over, and grants nothing for ") {
			t.Errorf("while the grace lasts: %s", out)
		}
		ended = code == 0
		time.Sleep(livetest.PollPause(time.Since(sent))) // between two tries
	}
	if since := time.Since(killed); since < 19*time.Second {
		t.Errorf("something was granted %v after the end of a master that may have granted a lease of 19s", since)
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code = %d, want 0: %s", code, p.out.String())
	}
}

func TestRedisNoIncrementIsLost(t *testing.T) {
	t.Parallel()
	_, dir := redisStore(t)
	incrementAll(t, dir)
}

// TestHiddenPassword checks that ps does not show a password that was given in --url,
// in any form of the flag.
func TestHiddenPassword(t *testing.T) {
	node := redistest.Single(t, redistest.Password(password)).Used()
	url := "redis://:" + encoded + "@" + node.Addr()
	for i, args := range [][]string{{"-u", url}, {"--url", url}, {"--url=" + url}, {"-u" + url}, {"-vu", url}} {
		dir := newStore(t)
		ready, stop := filepath.Join(dir, "ready"), filepath.Join(dir, "stop")
		name := strconv.Itoa(i)
		// The arguments behind the -- must not be changed.
		p := start(t, append(append([]string{"snib", "run", name}, args...), "--", "hold", ready, stop, "x://a:b@c")...)
		await(t, "command", func() bool { return exists(ready) })
		line := read(fmt.Sprintf("/proc/%d/cmdline", p.Process.Pid))
		if strings.Contains(line, "horse") || !strings.Contains(line, "run\x00"+name) || !strings.Contains(line, node.Addr()) ||
			!strings.Contains(line, "\x00x://a:b@c\x00") {
			t.Errorf("%v: ps shows %q", args, line)
		}
		touch(t, stop)
		if code := p.wait(); code != 0 {
			t.Errorf("%v: exit code = %d: %s", args, code, p.out.String())
		}
	}
}

// TestHiddenID checks that ps does not show an id from the command line.
func TestHiddenID(t *testing.T) {
	for _, flag := range [][]string{{"--id", "horse-battery"}, {"--id=horse-battery"}} {
		// There is no server, so the command tries again for a while.
		p := start(t, append([]string{"snib", "lock", "-u", "redis://127.0.0.1:1", "name", "--ttl", "1m"}, flag...)...)
		await(t, "hidden id", func() bool {
			line := read(fmt.Sprintf("/proc/%d/cmdline", p.Process.Pid))
			return strings.Contains(line, "--id") && !strings.Contains(line, "horse")
		})
		p.signal(syscall.SIGTERM)
		p.wait()
	}
}

// TestWaitsBehindNobody checks that a waiter learns the reason if it waits
// although nobody holds the lock.
func TestWaitsBehindNobody(t *testing.T) {
	t.Parallel()
	node := redistest.Single(t)
	newStore(t)
	c := startOnTerminal(t, "snib", "run", "-u", "redis://"+node.Addr(), "--ttl", "50s", "name", "--", "true")
	c.awaitScreen(`\r\x1b\[Ksnib: waiting for name: the store restarted or failed over, and grants nothing`)
	node.Hang()
	c.awaitScreen(`\r\x1b\[Ksnib: waiting for name: the store does not answer`)
	node.Resume()
	node.Kill()
	c.awaitScreen(`\r\x1b\[Ksnib: waiting for name: dial tcp`)
	c.press(ctrlC)
	c.wait()
	// The same if the wait ends by itself.
	out, code := snib(t, "run", "-u", "redis://"+node.Addr(), "-w", "1", "name", "--", "true")
	if code != 69 {
		t.Errorf("exit code = %d, want 69: %s", code, out)
	}
}

// TestGoneWhileWaiting checks that a wait that ends while the store does not answer does not
// report that the lock is taken: --skip would then be silent.
func TestGoneWhileWaiting(t *testing.T) {
	t.Parallel()
	node, _ := redisStore(t)
	startHolder(t, "name")
	var waiters []*proc
	for _, flag := range []string{"--ttl=30s", "--skip", "--quiet"} {
		waiters = append(waiters, start(t, "snib", "run", "-w", "25s", flag, "name", "--", "true"))
	}
	await(t, "waiters", func() bool {
		out, _ := snib(t, "show", "-o", "json", "name")
		return strings.Count(out, `"waited"`) == 3
	})
	node.Kill()
	for _, p := range waiters {
		if code := p.wait(); code != 69 || !strings.Contains(p.out.String(), "dial tcp") {
			t.Errorf("%v: exit code = %d, want 69 and that nobody is there: %s", p.Args, code, p.out.String())
		}
	}
}
