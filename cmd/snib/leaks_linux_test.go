package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// foundLeaks returns the leaks that snib leaks finds with further arguments, as "kind name".
func foundLeaks(t *testing.T, args ...string) []string {
	t.Helper()
	out, code := snib(t, append([]string{"leaks", "--settle", "1s", "-o", "json"}, args...)...)
	var doc struct {
		Leaks []struct{ Kind, Name string }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code > 1 {
		t.Fatalf("snib leaks %v: exit code %d, %v: %s", args, code, err, out)
	}
	var all []string
	for _, l := range doc.Leaks {
		all = append(all, l.Kind+" "+l.Name)
	}
	if wrong := len(all) > 0; wrong != (code == 1) {
		t.Errorf("snib leaks %v: exit code %d with %d leaks", args, code, len(all))
	}
	slices.Sort(all)
	return all
}

// wantLeaks checks the leaks that snib leaks finds.
func wantLeaks(t *testing.T, when string, args []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := foundLeaks(t, args...); !slices.Equal(got, want) {
		t.Errorf("%s, snib leaks %v finds\n%q, want\n%q", when, args, got, want)
	}
}

// startWaiter starts a snib run that waits for a lock.
func startWaiter(t *testing.T, name string) *proc {
	t.Helper()
	before := countWaiters(t, name)
	p := start(t, "snib", "run", name, "--", "true")
	await(t, "waiter for "+name, func() bool { return countWaiters(t, name) > before })
	return p
}

func countWaiters(t *testing.T, name string) int {
	t.Helper()
	out, _ := snib(t, "show", name, "-o", "json")
	return strings.Count(out, `"waited"`)
}

// TestLeaksFindsEachKind plants a leak of each kind beside healthy holds and
// waiters, and fixes them.
func TestLeaksFindsEachKind(t *testing.T) {
	t.Parallel()
	node, _ := redisStore(t)
	_, stop := startHolder(t, "healthy")
	defer stop()
	startWaiter(t, "healthy")
	_, stopShared := startHolder(t, "shared", "-s")
	defer stopShared()
	// The holder's process is this shell, which is gone.
	if p := start(t, "sh", "-c", "snib lock script --ttl 1h; :"); p.wait() != 0 {
		t.Fatal(p.out.String())
	}
	plantStrings(node, false)
	wantLeaks(t, "in a healthy store", nil)

	parent := t // the processes of the cases must live until the fix
	var want []string
	t.Run("Endless", func(t *testing.T) {
		mustSnib(t, "lock", "forever", "--ttl", "1h")
		node.Must("PERSIST", "forever")
		want = append(want, "endless forever")
		wantLeaks(t, "with a hold without an end", nil, want...)
	})
	t.Run("Dead", func(t *testing.T) {
		p, _ := startHolder(parent, "killed", "--ttl", "1h")
		p.kill()
		want = append(want, "dead killed")
		wantLeaks(t, "after a holder was killed", nil, want...)
	})
	_, stopQueue := startHolder(t, "queue")
	second := make(chan *proc, 1)
	t.Run("Stuck", func(t *testing.T) {
		first := startWaiter(parent, "queue")
		second <- startWaiter(parent, "queue")
		first.kill()
		await(t, "first waiter's end", func() bool { return isDead(first.Process.Pid) })
		want = append(want, "stuck queue")
		wantLeaks(t, "after the first waiter was killed", nil, want...)
	})
	plantQueue(t, node, "jammed")
	want = append(want, "stuck jammed")
	for _, key := range plantStrings(node, true) {
		want = append(want, "foreign "+key)
	}
	for _, key := range plantRedisson(node) {
		want = append(want, "foreign "+key)
	}
	wantLeaks(t, "with a leak of each kind", nil, want...)
	wantLeaks(t, "with a prefix", []string{"pottery"})
	// A key that is looked for by name need not be called a lock.
	wantLeaks(t, "with a prefix", []string{"plain-"}, "foreign plain-key", "foreign plain-lock")
	node.Must("SETNX", "order:1001", 1)
	wantLeaks(t, "with a prefix", []string{"order:"}, "foreign order:1001")
	if out, code := snib(t, "leaks", "--fix", "--yes", "--foreign", "order:"); code != 1 || !strings.Contains(out, "snib release deletes it") {
		t.Errorf("snib leaks --fix: exit code %d, want 1, because it may be no lock: %s", code, out)
	}
	if n := node.Must("EXISTS", "order:1001"); n != int64(1) {
		t.Errorf("--fix --foreign has deleted what may be no lock")
	}
	t.Run("Fix", func(t *testing.T) { checkFix(t, node) })
	stopQueue()
	if p := <-second; p.wait() != 0 {
		t.Errorf("the waiter behind one who is gone: %s", p.out.String())
	}
}

// checkFix runs --fix, and checks that it frees all leaks but those that it leaves alone.
func checkFix(t *testing.T, node *redistest.Node) {
	node.Must("PEXPIRE", "killed", 6000) // otherwise certainty would take a third of an hour
	out, code := snib(t, "leaks", "--fix", "--yes", "-o", "json")
	if code != 1 || !strings.Contains(out, `"fixed": true`) || !strings.Contains(out, "hold broken by force") {
		t.Errorf("snib leaks --fix: exit code %d, want 1, since keys of others are left: %s", code, out)
	}
	var left []string
	for _, l := range foundLeaks(t) {
		if !strings.HasPrefix(l, "foreign ") {
			left = append(left, l)
		}
	}
	if len(left) > 0 {
		t.Errorf("after --fix there are %q", left)
	}
	if out, code := snib(t, "run", "--try", "killed", "--", "true"); code != 0 {
		t.Errorf("a lock that was freed is not free: %s", out)
	}
	if n := node.Must("EXISTS", "plain-lock"); n != int64(1) {
		t.Errorf("without --foreign, --fix has deleted another library's key")
	}
	snib(t, "leaks", "--fix", "--yes", "--foreign", "-o", "json")
	for _, l := range foundLeaks(t) {
		if !strings.Contains(l, "redisson") {
			t.Errorf("after --fix --foreign there is %q", l)
		}
	}
	if n := node.Must("EXISTS", "plain-key", "data:lock"); n != int64(2) {
		t.Errorf("--fix --foreign has deleted what is no lock")
	}
}

// plantStrings writes what clients of SET NX write, with an end as they should, or without one.
// It returns the keys that then are left behind. It also writes strings that are no locks.
func plantStrings(node *redistest.Node, endless bool) []string {
	keys := map[string]string{
		"plain-lock":                     "0f2cfae04a2a4f6c8dd9b2f2c3b6a111",                                          // redis-py
		"Orders_Mutex":                   "f47ac10b-58cc-4372-a567-0e02b2c3d479",                                      // redlock-rb
		"lock:redsync":                   "q1w2e3r4t5y6u7i8o9p0aw==",                                                  // redsync
		"lock:bsm":                       "q1w2e3r4t5y6u7i8o9p0aw",                                                    // bsm/redislock
		"lock:20":                        "0f2cfae04a2a4f6c8dd9b2f2c3b6a1110f2cfae0",                                  // redlock-py
		"lock/net":                       "web-1_4711_0f2cfae04a2a4f6c8dd9b2f2c3b6a111",                               // madelson
		"redlock:report":                 "0f2cfae04a2a4f6c8dd9b2f2c3b6a111",                                          // pottery
		"job-lock:default:nightly":       "ADDED:2026-11-21T08:00:00.000Z@web-1:f47ac10b-58cc-4372-a567-0e02b2c3d479", // ShedLock
		"spring-integration:default-key": "f47ac10b-58cc-4372-a567-0e02b2c3d479",
	}
	var all []string
	for key, value := range keys {
		node.Must("SET", key, value, "PX", 3_600_000)
		if endless {
			node.Must("PERSIST", key)
			all = append(all, key)
		}
	}
	// This is data, unless somebody looks for it by name.
	node.Must("SET", "plain-key", "0f2cfae04a2a4f6c8dd9b2f2c3b6a111")
	node.Must("SET", "data:lock", "closed")
	node.Must("SET", "clock:unlocked", "0f2cfae04a2a4f6c8dd9b2f2c3b6a111")
	return all
}

// plantRedisson writes what Redisson writes, with and without an end, and returns the
// keys that are left behind.
func plantRedisson(node *redistest.Node) []string {
	const owner = "8c8ffe61-5bd3-4d78-a5c0-2d2386af488e:76"
	for _, key := range []string{"redisson-held", "redisson-left"} {
		node.Must("HSET", key, owner, 1)
	}
	node.Must("PEXPIRE", "redisson-held", 3_600_000)
	node.Must("HSET", "redisson-rw", "mode", "write", owner+":write", 2)
	node.Must("HSET", "redisson-no-lock", owner, 1, "name", "x")
	return []string{"redisson-left", "redisson-rw"}
}

// plantQueue writes a queue of two waiters of this host, who came 10 s ago and are gone.
func plantQueue(t *testing.T, node *redistest.Node, name string) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMicro()
	for i, owner := range []string{"first", "second"} {
		id := strconv.Quote(owner)
		request := `,"mode":"x","ttl":30000,"minhold":0,"tokens":1,"attempt":"1","channel":"snib.c:nobody","pid":1073741824,"host":` + strconv.Quote(host) + `}`
		const heartbeats = 4_000_000_000_000_000 // is added to the time of a heartbeat
		node.Must("ZADD", "snib.q:{"+name+"}", now-10_000_000+int64(i), id+request, now+heartbeats, id)
	}
}

// TestLeaksInDatabases checks that the hold of a killed process is found and freed while its
// lease lasts, and that a healthy hold is left alone.
func TestLeaksInDatabases(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"PostgreSQL": func(t *testing.T) string { return pgtest.Start(t).URL() },
		"MySQL":      func(t *testing.T) string { return mysqlURL(mysqltest.Start(t).Addr()) },
	} {
		t.Run(name, func(t *testing.T) {
			newStore(t)
			setenv(t, "SNIB_URL", url(t))
			_, stop := startHolder(t, "healthy")
			defer stop()
			startWaiter(t, "healthy")
			p, _ := startHolder(t, "killed", "--ttl", "24s")
			wantLeaks(t, "while all live", nil)
			p.kill()
			wantLeaks(t, "after a holder was killed", nil, "dead killed")
			if out, code := snib(t, "leaks", "--fix", "--yes"); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
			wantLeaks(t, "after --fix", nil)
			if out, code := snib(t, "run", "--try", "killed", "--", "true"); code != 0 {
				t.Errorf("a lock that was freed is not free: %s", out)
			}
		})
	}
}

// TestLeaksLeavesTheLivingAlone checks that a hold that somebody renews is no leak, even if
// its process can't be found.
func TestLeaksLeavesTheLivingAlone(t *testing.T) {
	t.Parallel()
	node, _ := redisStore(t)
	exited := start(t, "true")
	exited.wait()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	grant := fmt.Sprintf(`{"snib":2,"id":"me","token":5,"since":%d,"mode":"x","ttl":2000,"minhold":0,"tokens":1,"attempt":"1","channel":"snib.c:x","pid":%d,"host":%q}`,
		time.Now().UnixMicro(), exited.Process.Pid, host)
	node.Must("SET", "renewed", grant, "PX", 3_600_000)
	wantLeaks(t, "while nobody renews it", nil, "dead renewed")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			// As a holder in another container would do.
			_, _ = node.Do("PEXPIRE", "renewed", 3_600_000)
		}
	}()
	wantLeaks(t, "while somebody renews it", nil)
	cancel()
	<-done
}

// busyDuration returns how long TestLeaksOnABusyStore runs at least. SNIB_BUSY=60 makes it a
// minute.
func busyDuration(t *testing.T) time.Duration {
	n, err := strconv.Atoi(os.Getenv("SNIB_BUSY"))
	if err != nil {
		return 0
	}
	t.Logf("for %d s", n)
	return time.Duration(n) * time.Second
}

// TestLeaksOnABusyStore looks for leaks while locks change hands all the time, and
// processes begin and end.
func TestLeaksOnABusyStore(t *testing.T) {
	t.Parallel()
	onSQLiteAndRedis(t, func(t *testing.T, _ string) {
		const script = `while [ ! -e "$1" ]; do snib run "busy-$2" -- true || exit; done`
		enough := filepath.Join(t.TempDir(), "enough")
		var crowd []*proc
		for i := range 6 {
			crowd = append(crowd, start(t, "sh", "-c", script, "sh", enough, strconv.Itoa(i%2)))
		}
		rounds := 0
		for end := time.Now().Add(busyDuration(t)); rounds < 5 || time.Now().Before(end); rounds++ {
			wantLeaks(t, "on a healthy store", nil)
		}
		touch(t, enough)
		for _, p := range crowd {
			if code := p.wait(); code != 0 {
				t.Errorf("a run ended with %d: %s", code, p.out.String())
			}
		}
		t.Logf("%d looks", rounds)
	})
}

// TestLeaksAsks checks that on a terminal --fix shows what it would free, and frees exactly
// that if the user types yes.
func TestLeaksAsks(t *testing.T) {
	node, _ := redisStore(t)
	mustSnib(t, "lock", "forever", "--ttl", "1h")
	node.Must("PERSIST", "forever")
	for _, tt := range []struct {
		answer string
		code   int
		left   int64
	}{{"y\r", 64, 1}, {"\r", 64, 1}, {"yes\r", 0, 0}} {
		c := startOnTerminal(t, "snib", "leaks", "--fix")
		c.awaitScreen(`endless: forever: held by .*, without an end`)
		c.awaitScreen(`type yes to free 1 lock: `)
		c.press(tt.answer)
		if code := c.wait(); code != tt.code {
			t.Errorf("after %q the exit code is %d, want %d: %s", tt.answer, code, tt.code, c.screenText())
		}
		if n := node.Must("EXISTS", "forever"); n != tt.left {
			t.Errorf("after %q the lock's key is there %v times, want %d", tt.answer, n, tt.left)
		}
	}
}

// TestLeaksComparesBeforeItFrees checks that --fix leaves a hold alone that replaced the found
// one while the user was asked.
func TestLeaksComparesBeforeItFrees(t *testing.T) {
	node, _ := redisStore(t)
	mustSnib(t, "lock", "forever", "--ttl", "1h")
	node.Must("PERSIST", "forever")
	c := startOnTerminal(t, "snib", "leaks", "--fix")
	c.awaitScreen(`type yes to free 1 lock: `)
	for _, command := range [][]string{{"release", "forever", "--force", "--yes"}, {"lock", "forever", "--ttl", "1h"}} {
		mustSnib(t, command...)
	}
	c.press("yes\r")
	c.awaitScreen(`changed\s+in\s+the\s+meantime`)
	if code := c.wait(); code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, c.screenText())
	}
	if n := node.Must("EXISTS", "forever"); n != int64(1) {
		t.Errorf("a hold that was not found is freed")
	}
}

// locksVar is the environment variable with the number of locks for
// TestManyLocks, such as 1000000.
const locksVar = "SNIB_LOCKS"

func manyLocks(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv(locksVar))
	if err != nil {
		return 60_000
	}
	t.Logf("with %d locks", n)
	return n
}

// TestManyLocks counts so many locks, and looks for leaks among them, that a request for all at
// once would block the server, and a client that kept all of them would need too much memory. In
// redislock, TestListAmongMany checks that a list does not block the server.
func TestManyLocks(t *testing.T) {
	if os.Getenv(locksVar) == "" {
		livetest.Long(t)
	}
	node, _ := redisStore(t)
	fill(t, node, 2000)
	small := measure(t, "ls", "--count")
	n := manyLocks(t)
	fill(t, node, n)
	node.Must("PERSIST", "many:7")
	for _, command := range [][]string{{"ls", "--count"}, {"leaks", "-o", "name"}} {
		node.Must("CONFIG", "RESETSTAT")
		usage := measure(t, command...)
		checkNotBlocked(t, node, command, n)
		want := map[string]string{"ls": fmt.Sprintf("locks    %d\nheld     %[1]d\nholders  %[1]d\nwaiters  0", n), "leaks": "many:7"}[command[0]]
		if got := strings.TrimSpace(usage.out); got != want {
			t.Errorf("snib %v = %q, want %q", command, got, want)
		}
		t.Logf("snib %v: %v, %d MiB", command, usage.took.Round(time.Millisecond), usage.memory>>20)
		// With the race detector a program needs three times as much memory.
		if grown := usage.memory - small.memory; grown > 48<<20 {
			t.Errorf("snib %v takes %d MiB more than for 2,000 locks, want 48 MiB at most", command, grown>>20)
		}
	}
}

// checkNotBlocked checks that the server was asked about few locks at a time. How long that takes
// depends on the machine, and is only logged.
func checkNotBlocked(t *testing.T, node *redistest.Node, command []string, locks int) {
	t.Helper()
	calls, stats := node.Calls(), node.Info("commandstats")
	if calls["scan"] < locks/1000 || calls["evalsha"] < locks/100 || calls["keys"] > 0 {
		t.Errorf("snib %v, for %d locks, calls %v; want that it examines 1000 keys and 100 locks at a time at most",
			command, locks, calls)
	}
	t.Logf("snib %v: scan: %s, evalsha: %s", command, stats["cmdstat_scan"], stats["cmdstat_evalsha"])
}

// A usage is what one call of snib used.
type usage struct {
	out    string
	took   time.Duration
	memory int64 // peak, in bytes
}

func measure(t *testing.T, args ...string) usage {
	t.Helper()
	cmd := command(t, append([]string{"snib"}, args...)...)
	began := time.Now()
	out, _ := cmd.Output() // leaks exits with 1
	u := usage{out: string(out), took: time.Since(began)}
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = int64(r.Maxrss) << 10 //nolint:unconvert // it is an int32 on 32-bit machines
	}
	return u
}

// fill creates the locks many:1 to many:N, held by somebody on another host.
func fill(t *testing.T, node *redistest.Node, n int) {
	t.Helper()
	const script = `for i = ARGV[1], ARGV[2] do
		local name = 'many:' .. string.format('%d', i)
		redis.call('SET', name, '{"snib":2,"id":"owner","token":7,"since":' .. ARGV[3] .. ',"mode":"x",' ..
			'"ttl":1,"minhold":0,"tokens":1,"attempt":"1","channel":"snib.c:x","pid":1,"host":"elsewhere","label":"a label of usual length"}', 'PX', 3600000)
	end`
	for i := 1; i <= n; i += 1000 {
		node.Must("EVAL", script, 0, i, min(i+999, n), time.Now().UnixMicro())
	}
}
