package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestKillAfter signals a run whose command ignores signals. The command must be killed after
// --kill-after, counted from the first signal.
func TestKillAfter(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) {
			log := filepath.Join(newStore(t), "signals")
			p := start(t, "snib", "run", "-k", grace.String(), "name", "--", "sh", "-c", `trap "" TERM INT HUP QUIT; sigs "$0" & sigs "$0"; true`, log)
			await(t, "both", func() bool { return strings.Count(read(log), "ready") == 2 })
			began := time.Now()
			p.signal(s)
			await(t, "signal", func() bool { return strings.Count(read(log), s.String()) == 2 })
			p.signal(syscall.SIGTERM) // does not change the time
			if code := p.wait(); code != 137 {
				t.Errorf("exit code = %d, want 137: %s", code, p.out.String())
			}
			if took := time.Since(began); took < grace {
				t.Errorf("the command was killed %v after the signal, want %v", took, grace)
			}
			var a, b int
			if _, err := fmt.Sscanf(strings.ReplaceAll(read(log), s.String()+"\n", ""), "ready %d\nready %d", &a, &b); err != nil || !isDead(a) || !isDead(b) {
				t.Errorf("the processes %d and %d are not both dead, or the log is malformed: %v", a, b, err)
			}
			if out, code := snib(t, "run", "-n", "name", "--", "true"); code != 0 {
				t.Errorf("the next run exits %d: %s", code, out)
			}
		})
	}
}

// A server is one of the servers of livetest.
type server interface {
	Hang()
	Resume()
	Kill()
	Restart()
}

// A group is servers that one URL names together.
type group []server

func (g group) Hang()    { g.each(server.Hang) }
func (g group) Resume()  { g.each(server.Resume) }
func (g group) Kill()    { g.each(server.Kill) }
func (g group) Restart() { g.each(server.Restart) }

func (g group) each(do func(server)) {
	for _, s := range g {
		do(s)
	}
}

// forEachServer calls each with a store of each kind that has servers, for all kinds at once:
// parallel tests would take turns, and these only wait most of the time.
func forEachServer(t *testing.T, each func(t *testing.T, s server, url string)) {
	t.Helper()
	newStore(t)
	var all sync.WaitGroup
	for _, kind := range []string{"redis", "redlock", "postgres", "mysql", "zk", "etcd"} {
		all.Go(func() {
			t.Run(kind, func(t *testing.T) {
				s, url := startServer(t, kind)
				each(t, s, url)
			})
		})
	}
	all.Wait()
}

// startServer starts a server with some settings, and returns it with its URL.
func startServer(t *testing.T, kind string, settings ...string) (s server, url string) {
	t.Helper()
	switch kind {
	case "redis":
		n := redistest.Single(t, settings...).Used()
		return n, "redis://" + n.Addr()
	case "redlock":
		url, nodes := startRedlock(t, 3, redistest.Password(password))
		url += "?max-ttl=1h"
		mustSnib(t, "redlock", "init", url)
		var g group
		for _, n := range nodes {
			g = append(g, n)
		}
		return g, url
	case "zk":
		s := zktest.Single(t)
		return s, "zk://" + s.Addr()
	case "etcd":
		s := etcdtest.Start(t)
		return s, "etcd://" + s.Addr()
	case "postgres":
		s := pgtest.Start(t, settings...)
		return s, s.URL()
	default:
		s := mysqltest.Start(t, settings...)
		return s, mysqlURL(s.Addr())
	}
}

// TestHungStore hangs the server under a run whose command then ends. The run must end soon
// after, with the command's exit code.
func TestHungStore(t *testing.T) {
	t.Parallel()
	forEachServer(t, func(t *testing.T, s server, url string) {
		dir := t.TempDir()
		ready, stop := filepath.Join(dir, "ready"), filepath.Join(dir, "stop")
		if strings.HasPrefix(url, "zk:") {
			url += "?session-timeout=1m" // by default, a lease lasts hardly longer than a release
		}
		p := start(t, "snib", "run", "-u", url, "--ttl", "10m", "name", "--", "sh", "-c", "hold "+ready+" "+stop+"; exit 7")
		await(t, "command", func() bool { return exists(ready) })
		s.Hang()
		defer s.Resume()
		touch(t, stop)
		slack, began := livetest.Slack(t), time.Now()
		if code := p.wait(); code != 7 {
			t.Errorf("exit code = %d, want the command's 7: %s", code, p.out.String())
		}
		took := time.Since(began)
		t.Logf("the run ended %v after its command", took)
		if took > 12*time.Second+slack() { // 6 s on an idle machine
			t.Errorf("the run ended %v after its command, want at most 6 s", took)
		}
		if out := p.out.String(); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "snib: warning: name could not be released: ") {
			t.Errorf("it says %q, want one line that name could not be released", out)
		}
	})
}

// TestUnavailable runs commands that must not wait for a lock, or not for long, on stores that are
// down or hung. They end soon, and say why. Nobody is known to hold the lock, so the lock is not
// busy, and --skip is not silent.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	ways := [][]string{
		{"ls"}, {"show", "name"}, {"leaks"}, {"wait", "name"}, {"wait", "-w", "1", "name"}, {"release", "name", "--id", "me", "--yes"},
		{"release", "name", "--force", "--yes"}, {"run", "-n", "name", "--", "true"}, {"run", "--skip", "name", "--", "true"},
		{"run", "--skip", "-q", "name", "--", "true"}, {"run", "--skip", "-q", "-w", "0.5", "name", "--", "true"}, {"run", "-q", "-w", "0.5", "name", "--", "true"},
	}
	forEachServer(t, func(t *testing.T, s server, url string) {
		ways := ways
		if outlives(url) {
			ways = append(slices.Clone(ways), []string{"lock", "-n", "--ttl", "1m", "name"})
		}
		// This creates the table.
		mustSnib(t, "run", "-u", url, "name", "--", "true")
		check := func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			var all sync.WaitGroup // parallel tests would take turns
			for _, args := range ways {
				all.Go(func() {
					cmd := exec.CommandContext(ctx, "snib", slices.Insert(slices.Clone(args), 1, "-u", url)...)
					out := checkFailure(t, cmd, 69)
					if strings.Contains(out, "context canceled") || strings.Contains(out, "context deadline exceeded") {
						t.Errorf("%v says %q, which names no cause", args, out)
					}
				})
			}
			all.Wait()
		}
		s.Hang()
		t.Run("hung", check)
		s.Resume()
		s.Kill()
		t.Run("down", check)
	})
}

// outlives reports whether a lock in the store with this URL can outlive the process that took it.
func outlives(url string) bool {
	return !strings.HasPrefix(url, "zk:") && !strings.HasPrefix(url, "etcd:")
}

// TestFirstContact starts runs while the server hangs or is down. They must say so, even without a
// terminal, and get the lock when it is back. So must a run say it that waits for a holder.
func TestFirstContact(t *testing.T) {
	t.Parallel()
	forEachServer(t, func(t *testing.T, s server, url string) {
		if strings.HasPrefix(url, "redis:") {
			url += "?failover-grace=off" // otherwise the new server would grant nothing for a while
		}
		check := func(t *testing.T, back func()) {
			t.Helper()
			p := start(t, "snib", "run", "-u", url, "--ttl", "15s", "name", "--", "echo", "ran")
			all := []*proc{p}
			if outlives(url) {
				all = append(all, start(t, "snib", "lock", "-u", url, "--ttl", "1s", "-w", "5m", "other"))
			}
			for _, p := range all {
				p.awaitOutput("snib: waiting for ")
			}
			back()
			for _, p := range all {
				if code := p.wait(); code != 0 {
					t.Errorf("%v: exit code = %d, want 0: %s", p.Args, code, p.out.String())
				}
			}
			if !strings.Contains(p.out.String(), "\nran\n") {
				t.Errorf("the command did not run: %s", p.out.String())
			}
		}
		t.Run("hung", func(t *testing.T) {
			startHolder(t, "held", "-u", url)
			queued := start(t, "snib", "run", "-u", url, "held", "--", "true")
			await(t, "waiter", func() bool {
				out, _ := snib(t, "show", "-u", url, "held")
				return strings.Contains(out, "waiting")
			})
			s.Hang()
			queued.awaitOutput("snib: waiting for held: ")
			check(t, s.Resume)
		})
		if strings.HasPrefix(url, "redlock:") {
			return // nodes that have all restarted grant nothing before snib redlock recover
		}
		t.Run("down", func(t *testing.T) {
			s.Kill()
			check(t, s.Restart)
		})
	})
}

// TestHungForEver hangs the server for ever under a run that waits for a holder, and before another
// run starts. Both end with an error after the same time on all stores.
func TestHungForEver(t *testing.T) {
	livetest.Long(t)
	forEachServer(t, func(t *testing.T, s server, url string) {
		startHolder(t, "name", "-u", url)
		run := func() *proc { return start(t, "snib", "run", "-q", "-u", url, "name", "--", "true") }
		queued := run()
		await(t, "waiter", func() bool {
			out, _ := snib(t, "show", "-u", url, "name")
			return strings.Contains(out, "waiting")
		})
		s.Hang()
		defer s.Resume()
		slack, began := livetest.Slack(t), time.Now()
		first := run()
		var all sync.WaitGroup
		for what, p := range map[string]*proc{"queued": queued, "first contact": first} {
			all.Go(func() {
				select {
				case <-p.exited:
				case <-time.After(2 * driver.RetryTimeout):
				}
				took := time.Since(began)
				if took < driver.RetryTimeout || took > driver.RetryTimeout+2*driver.AnswerTimeout+slack() {
					t.Errorf("%s: it took %v, want %v to %v", what, took, driver.RetryTimeout, driver.RetryTimeout+2*driver.AnswerTimeout)
				}
			})
		}
		all.Wait()
		for what, p := range map[string]*proc{"queued": queued, "first contact": first} {
			if code := p.wait(); code != 69 {
				t.Errorf("%s: exit code = %d, want 69: %s", what, code, p.out.String())
			}
		}
	})
}

// TestSlowDial runs a command on servers that accept connections and say nothing, with a dial
// timeout that is longer than the pauses between requests. It fails after about a minute, as with
// the default.
func TestSlowDial(t *testing.T) {
	livetest.Long(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	newStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for _, url := range []string{"mysql://user@%s/db?timeout=11s", "zk://%s?dial-timeout=11s", "redis://%s?dial-timeout=11s"} {
		all.Go(func() {
			began := time.Now()
			cmd := exec.CommandContext(ctx, "snib", "run", "-q", "-u", fmt.Sprintf(url, l.Addr()), "name", "--", "true")
			checkFailure(t, cmd, 69)
			if took := time.Since(began); took < driver.RetryTimeout-10*time.Second ||
				took > driver.RetryTimeout+40*time.Second {
				t.Errorf("%s: it took %v, want about %v", url, took, driver.RetryTimeout)
			}
		})
	}
	all.Wait()
}

// TestHerd starts more runs at once than the server accepts connections.
func TestHerd(t *testing.T) {
	for kind, connections := range map[string]string{"redis": "maxclients 30", "postgres": "max_connections=20",
		"mysql": "max-connections=20"} {
		t.Run(kind, func(t *testing.T) {
			newStore(t)
			_, url := startServer(t, kind, connections)
			setenv(t, "SNIB_URL", url)
			var all []*proc
			for range 40 {
				all = append(all, start(t, "snib", "run", "name", "--", "true"))
			}
			for _, p := range all {
				<-p.exited // on a busy machine, not soon
				if code := p.ProcessState.ExitCode(); code != 0 {
					t.Errorf("exit code = %d: %s", code, p.out.String())
				}
			}
		})
	}
}

// TestNoPasswordAnywhere runs all commands that show their store on a store whose URL contains
// a password, correctly encoded or not.
func TestNoPasswordAnywhere(t *testing.T) {
	t.Parallel()
	const first, second = "qzq1971", "wvw1872"
	server := pgtest.Start(t)
	addr, db := server.Addr(), "/postgres?sslmode=disable"
	mustSnib(t, "run", "-u", server.URL(), "name", "--", "true")
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	// The server takes any password from this role.
	if _, err := conn.Exec(t.Context(), "CREATE ROLE anybody LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO anybody"); err != nil {
		t.Fatal(err)
	}
	commands := [][]string{
		{"run", "-v", "-n", "name", "--", "sh", "-c", "echo $SNIB_HELD"}, {"lock", "-v", "-n", "name", "--ttl", "1m"}, {"ls", "-o", "json"},
		{"show", "name", "-v", "-o", "json"}, {"run", "-n", "name", "--", "true"}, {"wait", "-w", "0", "name"},
		{"leaks", "-o", "json"}, {"doctor", "-o", "json"},
		{"release", "name", "--id", "me", "--yes"}, {"unlock", "-v", "name", "--id", "me"}, {"__complete", "show", ""},
	}
	try := func(url string, refused bool) {
		t.Helper()
		setenv(t, "SNIB_URL", url)
		for _, args := range commands {
			out, code := snib(t, args...)
			if strings.Contains(out, first) || strings.Contains(out, second) {
				t.Errorf("%v with %s: a part of the password in %s", args, url, out)
			}
			if refused && code != 78 && args[0] != "__complete" {
				t.Errorf("%v with %s: exit code = %d, want 78: %s", args, url, code, out)
			}
		}
	}
	newStore(t)
	good := "postgres://anybody:" + first + "%2F%3F%23%40%3A" + second + "@" + addr + db
	try(good, false)
	mustSnib(t, "lock", "watched", "--ttl", "1h")
	watch := start(t, "snib", "watch", "--url", good)
	watch.awaitOutput("watched")
	// A watch ends if the store does not answer at first.
	commands = append(commands, []string{"watch"})
	try("postgres://anybody:"+first+"%2F"+second+"@127.0.0.1:1"+db, false)     // nobody listens there
	try("postgres://anybody:"+first+"%2F"+second+"@"+addr+"/no%2Fsuch", false) // no such database
	// All commands open the store in the same function.
	commands = [][]string{commands[0], commands[1], commands[2], commands[10]}
	for _, scheme := range []string{"postgres", "mysql", "redis", "redis+sentinel", "redlock", "zk", "etcd"} {
		for _, sep := range []string{"/", "?", "#"} {
			try(scheme+"://app:1971"+sep+second+"@"+addr+"/x", true)
		}
	}
	server.Kill()
	watch.awaitOutput("still watching")
	if out := watch.out.String(); strings.Contains(out, first) || strings.Contains(out, second) {
		t.Errorf("snib watch: a part of the password in %s", out)
	}
}

// TestHostileServer checks that control characters in the answers of a server do not reach the
// terminal.
func TestHostileServer(t *testing.T) {
	addr := livetest.Fake(t, func(conn net.Conn) {
		for in := bufio.NewScanner(conn); in.Scan(); {
			if strings.HasPrefix(in.Text(), "*") {
				fmt.Fprint(conn, "-ERR \x1b]0;owned\x07\x1b[2J\u202e \x9b2J\x00\r\n")
			}
		}
	})
	newStore(t)
	setenv(t, "SNIB_URL", "redis://"+addr)
	for _, args := range [][]string{
		{"run", "-v", "-n", "name", "--", "true"}, {"run", "--skip", "name", "--", "true"}, {"ls"}, {"show", "name"}, {"lock", "-n", "name", "--ttl", "1m"}, {"doctor"},
		{"release", "name", "--force", "--yes"},
	} {
		out, code := snib(t, args...)
		if code == 0 || !strings.Contains(out, "owned") || strings.ContainsFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
}
