//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// A proc is a running command.
type proc struct {
	*exec.Cmd
	t      *testing.T
	out    output // both streams
	exited chan struct{}
}

// An output collects what a command has printed.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// environments has what setenv has set, by the name of the test.
var environments sync.Map

// setenv sets a variable for the commands that t and its subtests start. Tests that use t.Setenv
// could not run in parallel.
func setenv(t *testing.T, name, value string) {
	t.Helper()
	env, _ := environments.Load(t.Name())
	list, _ := env.([]string)
	environments.Store(t.Name(), append(slices.Clip(list), name+"="+value))
	t.Cleanup(func() { environments.Delete(t.Name()) })
}

// environ returns the environment of the commands that t starts. The variables of a subtest
// override those of its test.
func environ(t *testing.T) []string {
	env := os.Environ()
	for i, c := range t.Name() + "/" {
		if c == '/' {
			list, _ := environments.Load(t.Name()[:i])
			own, _ := list.([]string)
			env = append(env, own...)
		}
	}
	return env
}

// command returns a command with the environment of t.
func command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = environ(t)
	return cmd
}

// shortTTL is a TTL that a test waits for, and that a slow disk does not outlast.
const shortTTL = "5s"

// start runs a command without a terminal.
func start(t *testing.T, args ...string) *proc {
	t.Helper()
	restoreSignals()
	p := &proc{Cmd: command(t, args...), t: t, exited: make(chan struct{})}
	p.Stdout, p.Stderr = &p.out, &p.out
	// Without a session of its own it would lend the terminal on which the tests run.
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go func() {
		_ = p.Cmd.Wait() // the method wait looks at the state
		close(p.exited)
	}()
	return p
}

// restoreSignals makes commands react to signals that this process ignores because of nohup, or
// because a script started it in the background.
func restoreSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			// A child gets the default action of a signal that has a handler.
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// kill makes sure that nothing of a failed test is left, and logs what the command has said.
func (p *proc) kill() {
	_ = p.Process.Kill() // it may have ended
	<-p.exited
	if p.t.Failed() {
		p.t.Logf("%s: %v, %s", p.Args, p.ProcessState, p.out.String())
	}
}

// wait waits for the end of the command and returns its exit code.
func (p *proc) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode()
	case <-time.After(testTimeout):
		p.t.Fatalf("%v has not ended", p.Args)
		return -1
	}
}

// awaitOutput waits until the command has printed text.
func (p *proc) awaitOutput(text string) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("%q from %v", text, p.Args), func() bool { return strings.Contains(p.out.String(), text) })
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// snib runs a snib command until it ends.
func snib(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	p := start(t, append([]string{"snib"}, args...)...)
	code = p.wait()
	return p.out.String(), code
}

// mustSnib runs a snib command that succeeds, and returns its output.
func mustSnib(t *testing.T, args ...string) (out string) {
	t.Helper()
	out, code := snib(t, args...)
	if code != 0 {
		t.Fatalf("snib %v: exit code %d: %s", args, code, out)
	}
	return out
}

// newStore gives the test its own store, and returns a folder.
func newStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	setenv(t, "XDG_STATE_HOME", dir)
	setenv(t, "SNIB_HELD", "")
	return dir
}

// startHolder starts a snib run, and returns when it holds the lock. stop ends its command, and
// returns the exit code.
func startHolder(t *testing.T, name string, args ...string) (p *proc, stop func() int) {
	t.Helper()
	dir := t.TempDir()
	ready, end := filepath.Join(dir, "ready"), filepath.Join(dir, "stop")
	p = start(t, slices.Concat([]string{"snib", "run", name}, args, []string{"--", "hold", ready, end})...)
	await(t, "command under "+name, func() bool { return exists(ready) })
	return p, func() int {
		t.Helper()
		touch(t, end)
		return p.wait()
	}
}

func read(file string) string {
	text, _ := os.ReadFile(file) // a missing file is empty
	return string(text)
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !poll(ok) {
		t.Fatalf("no %s within %v", what, testTimeout)
	}
}

func awaitText(t *testing.T, file, want string) {
	t.Helper()
	await(t, fmt.Sprintf("%q in %s", want, file), func() bool { return strings.Contains(read(file), want) })
}

// procState returns the state letter of a process, and its parent. A process that
// does not exist has state 0.
func procState(pid int) (state byte, parent int) {
	_, rest, _ := strings.Cut(read(fmt.Sprintf("/proc/%d/stat", pid)), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0][0], parent
}

// isDead reports whether a process has died, even if its parent has not collected it yet.
func isDead(pid int) bool {
	state, _ := procState(pid)
	return state == 0 || state == 'Z' || state == 'X'
}

// A journalLine is a line that the program journal writes.
type journalLine struct {
	what  string
	pid   int
	token uint64
}

func readJournal(t *testing.T, file string) []journalLine {
	t.Helper()
	var all []journalLine
	for _, text := range strings.Split(strings.TrimSuffix(read(file), "\n"), "\n") {
		var l journalLine
		if n, _ := fmt.Sscan(text, &l.what, &l.pid, &l.token); n == 3 {
			all = append(all, l)
		}
	}
	return all
}

// checkJournal reports children that wrote beside the next holder, and tokens that did not grow.
func checkJournal(t *testing.T, all []journalLine) {
	t.Helper()
	var now journalLine
	for i, l := range all {
		switch {
		case l.what == "begin" && l.token <= now.token:
			t.Errorf("line %d: token %d after %d", i, l.token, now.token)
		case l.what == "end" && l.pid != now.pid:
			t.Errorf("line %d: %d still ran beside %d", i, l.pid, now.pid)
		}
		if l.what == "begin" {
			now = l
		}
	}
}

func TestNoIncrementIsLost(t *testing.T) {
	t.Parallel()
	incrementAll(t, newStore(t))
}

// incrementAll has many processes count under a lock, in a file in dir.
func incrementAll(t *testing.T, dir string) {
	t.Helper()
	const procs, runs = 8, 15
	file := filepath.Join(dir, "counter")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range procs {
		all.Go(func() {
			for range runs {
				out, err := command(t, "snib", "run", "counter", "--", "increment", file).CombinedOutput()
				if err != nil || len(out) > 0 {
					t.Errorf("snib run: %v: %s", err, out)
					return
				}
			}
		})
	}
	all.Wait()
	if got, want := read(file), strconv.Itoa(procs*runs); got != want {
		t.Errorf("counter = %s, want %s", got, want)
	}
}

// A crowd is a number of snib runs that compete for one lock all the time. The command of each
// would work for far longer than the test lets it.
type crowd struct {
	log  string
	stop atomic.Bool
	all  sync.WaitGroup

	mu   sync.Mutex
	pids []int // by contender; 0 while it has none
}

func newCrowd(t *testing.T, n int) *crowd {
	c := &crowd{log: filepath.Join(newStore(t), "journal"), pids: make([]int, n)}
	for i := range n {
		c.all.Go(func() {
			for !c.stop.Load() {
				c.contend(t, i)
			}
		})
	}
	return c
}

func (c *crowd) contend(t *testing.T, i int) {
	cmd := command(t, "snib", "run", "--ttl", "1h", "name", "--", "journal", c.log, "10m")
	c.mu.Lock()
	if err := cmd.Start(); err != nil {
		t.Error(err)
		c.stop.Store(true)
	} else {
		c.pids[i] = cmd.Process.Pid
	}
	c.mu.Unlock()
	_ = cmd.Wait() // the test kills it
	c.mu.Lock()
	c.pids[i] = 0
	c.mu.Unlock()
}

// kill kills a random snib run, and returns its pid.
func (c *crowd) kill() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pid := c.pids[rand.N(len(c.pids))]
	if pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		return 0
	}
	return pid
}

// holder returns the last child that began, and the snib run above it.
func (c *crowd) holder(t *testing.T) (child journalLine, wrapper int) {
	if all := readJournal(t, c.log); len(all) > 0 {
		child = all[len(all)-1]
		_, wrapper = procState(child.pid)
	}
	return child, wrapper
}

// TestKilledRuns kills random snib runs, holders and waiters. The child must die with its snib
// run, and the next holder must come soon.
func TestKilledRuns(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 4)
	var killed int
	for killed < 25 && !t.Failed() {
		time.Sleep(rand.N(60 * time.Millisecond)) // to hit all phases
		child, wrapper := c.holder(t)
		if pid := c.kill(); pid == 0 || pid != wrapper {
			continue
		}
		killed++
		await(t, "end of the child", func() bool { return isDead(child.pid) })
		// Neither a TTL nor the work is so short.
		await(t, "next holder", func() bool { next, _ := c.holder(t); return next.token > child.token })
	}
	c.stop.Store(true)
	finished := make(chan struct{})
	go func() { c.all.Wait(); close(finished) }()
	await(t, "end of the crowd", func() bool {
		c.kill()
		select {
		case <-finished:
			return true
		default:
			return false
		}
	})
	all := readJournal(t, c.log)
	checkJournal(t, all)
	for _, l := range all {
		if l.what == "end" {
			t.Errorf("the child %d outlived its wrapper", l.pid)
		}
	}
	t.Logf("%d holders were killed at work, %d children began", killed, len(all))
}

// TestHeirsKeepTheLock kills a snib run whose child has started a process. That process lives
// on, and the lock must stay taken, past its TTL, until it ends.
func TestHeirsKeepTheLock(t *testing.T) {
	t.Parallel()
	dir := newStore(t)
	ready, stop := filepath.Join(dir, "ready"), filepath.Join(dir, "stop")
	p := start(t, "snib", "run", "--ttl", shortTTL, "name", "--", "sh", "-c", "hold "+ready+" "+stop+"; exit")
	await(t, "grandchild", func() bool { return exists(ready) })
	p.signal(syscall.SIGKILL)
	if _, code := snib(t, "wait", "-w", "6s", "name"); code != 75 {
		t.Errorf("snib wait while a grandchild runs exits %d, want 75", code)
	}
	touch(t, stop)
	if out, code := snib(t, "run", "-w", "60s", "name", "--", "true"); code != 0 {
		t.Errorf("snib run after its end exits %d: %s", code, out)
	}
}

// TestStoppedTree stops a snib run and its child until somebody else has the lock. When the
// snib run continues, it must notice that before it continues the child, and kill the child.
func TestStoppedTree(t *testing.T) {
	t.Parallel()
	dir := newStore(t)
	log, done, finished := filepath.Join(dir, "journal"), filepath.Join(dir, "done"), filepath.Join(dir, "over")
	p := start(t, "snib", "run", "--ttl", shortTTL, "name", "--", "journal", log, "10m", done)
	awaitText(t, log, "begin")
	child := readJournal(t, log)[0]
	p.signal(syscall.SIGSTOP)
	if err := syscall.Kill(-child.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := start(t, "snib", "run", "--ttl", "1m", "name", "--", "journal", log, "10m", finished)
	await(t, "next holder", func() bool { return len(readJournal(t, log)) == 2 })
	touch(t, done) // a child that continued would write its end at once
	p.signal(syscall.SIGCONT)
	if code := p.wait(); code != 79 {
		t.Errorf("exit code = %d, want 79: %s", code, p.out.String())
	}
	if !isDead(child.pid) {
		t.Errorf("the child is still there")
	}
	if out := p.out.String(); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "snib: lost name: ") {
		t.Errorf("message = %q, want one line that begins with snib: lost name:", out)
	}
	touch(t, finished)
	if code := next.wait(); code != 0 {
		t.Errorf("the next holder exits %d: %s", code, next.out.String())
	}
	all := readJournal(t, log)
	checkJournal(t, all)
	if len(all) != 3 {
		t.Errorf("journal = %v, want begin, begin, end", all)
	}
}

// TestStoppedWrapper stops snib run alone. Its child can't know, and must be killed
// when snib run continues.
func TestStoppedWrapper(t *testing.T) {
	t.Parallel()
	newStore(t)
	p, _ := startHolder(t, "name", "--ttl", shortTTL)
	p.signal(syscall.SIGSTOP)
	mustSnib(t, "run", "-w", "60s", "name", "--", "true")
	p.signal(syscall.SIGCONT)
	if code := p.wait(); code != 79 {
		t.Errorf("exit code = %d, want 79: %s", code, p.out.String())
	}
}

func TestLoss(t *testing.T) {
	t.Parallel()
	force := func(t *testing.T, _ string) {
		mustSnib(t, "release", "name", "--force", "--yes")
	}
	none := func(*testing.T, string) {}
	unlink := func(t *testing.T, dir string) {
		for _, file := range []string{"locks.db", "locks.db-wal", "locks.db-shm", "locks.db.live"} {
			_ = os.Remove(filepath.Join(dir, "snib", file)) // some don't exist
		}
	}
	const ended, killed = "terminated\n", "" // what the child logs
	for _, tt := range []lossTest{
		{"Forced", force, "snib: lost name: ", killed},
		{"MaxHold", none, "its --max-hold is nearly over; ending the command", ended},
		{"StoreGone", unlink, "snib: about to lose name: its lease can't be renewed: ", ended},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newStore(t)
			// On a machine that stands still for a good part of the TTL, a hold may be lost by that, or
			// the command may start, or end, too late. It then gets more time.
			for ttl := 3 * time.Second; ; ttl *= 2 {
				machine := livetest.Lateness(t)
				err := tt.run(t, dir, ttl)
				late := machine()
				if err == nil {
					return
				}
				if late < ttl/30 || ttl > 10*time.Second {
					t.Fatalf("with a TTL of %v, on a machine that was late by %v: %v", ttl, late, err)
				}
				t.Logf("with a TTL of %v, on a machine that was late by %v: %v", ttl, late, err)
			}
		})
	}
}

// TestHoldTellsOfTheLoss has a script go on after "about to lose". It is told of the loss, too.
func TestHoldTellsOfTheLoss(t *testing.T) {
	t.Parallel()
	dir := newStore(t)
	p := start(t, "sh", "-c", `trap : TERM; snib hold name --pid $$ --ttl 3s >/dev/null; rm -r "$0"; while :; do sleep 0.1; done`, dir)
	p.awaitOutput("snib: about to lose name: ")
	p.awaitOutput("snib: lost name: ")
}

// TestHoldGivesUp kills a script while snib hold tries to reach the store. snib hold must end, too.
func TestHoldGivesUp(t *testing.T) {
	p := start(t, "sh", "-c", `snib hold -u redis://127.0.0.1:1 --retry 2m name --pid $$ >/dev/null; true`)
	p.awaitOutput("snib: waiting for name: ")
	p.signal(syscall.SIGKILL)
	p.wait() // for all that print to the same pipe
}

// A lossTest is a way in which snib run loses its hold.
type lossTest struct {
	name    string
	lose    func(t *testing.T, dir string)
	message string
	says    string // the signals that the command gets, as it logs them
}

// run has a command lose its hold, and returns what was wrong.
func (l lossTest) run(t *testing.T, dir string, ttl time.Duration) error {
	log := filepath.Join(dir, "signals with "+ttl.String())
	args := []string{"snib", "run", "--ttl", ttl.String(), "name"}
	if l.name == "MaxHold" {
		args = append(args, "--max-hold", (ttl * 4 / 3).String()) // in three quarters of which the command has to start
	}
	p := start(t, append(args, "--", "sigs", log, "terminated")...)
	if !poll(func() bool { return strings.Contains(read(log), "ready") }) {
		return fmt.Errorf("the command did not start: %s", p.out.String())
	}
	l.lose(t, dir)
	code := p.wait()
	_, got, _ := strings.Cut(read(log), "\n")
	got = strings.ReplaceAll(got, "continued\n", "")
	if out := p.out.String(); code != 79 || got != l.says || !strings.Contains(out, l.message) {
		return fmt.Errorf("exit code %d with the signals %q and the message %q, want 79 with %q and %q", code, got, out, l.says, l.message)
	}
	return nil
}

// TestSignals sends each signal that is forwarded. It must reach the child once.
func TestSignals(t *testing.T) {
	log := filepath.Join(newStore(t), "signals")
	p := start(t, "snib", "run", "-k", "10m", "name", "--", "sigs", log, "terminated")
	awaitText(t, log, "ready")
	var want string
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
		syscall.SIGCONT, syscall.SIGTERM,
	} {
		p.signal(s)
		want += s.String() + "\n"
		awaitText(t, log, s.String())
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code = %d, want the command's 0: %s", code, p.out.String())
	}
	if _, got, _ := strings.Cut(read(log), "\n"); got != want {
		t.Errorf("signals = %q, want %q", got, want)
	}
}

// TestIgnoredSignals checks that the command ignores what our parent ignores, as nohup needs it.
func TestIgnoredSignals(t *testing.T) {
	newStore(t)
	p := start(t, "sh", "-c", `trap "" HUP; snib run name -- sh -c 'kill -HUP $$; kill -HUP $PPID; echo survived'`)
	if code := p.wait(); code != 0 || p.out.String() != "survived\n" {
		t.Errorf("exit code = %d, output %q; want 0 and survived", code, p.out.String())
	}
}

// TestStoppedCommand checks that a stopped command keeps its lock past its TTL, without a
// terminal too.
func TestStoppedCommand(t *testing.T) {
	t.Parallel()
	newStore(t)
	p := start(t, "snib", "run", "--ttl", shortTTL, "name", "--", "sh", "-c", "kill -STOP $$; exit 3")
	p.awaitOutput("the command was stopped")
	await(t, "hold longer than its TTL", func() bool { return heldFor(t, "name") > 6*time.Second })
	p.signal(syscall.SIGCONT)
	if code := p.wait(); code != 3 {
		t.Errorf("exit code = %d, want the command's 3: %s", code, p.out.String())
	}
}

// heldFor returns how long a lock has been held.
func heldFor(t *testing.T, name string) time.Duration {
	t.Helper()
	out, _ := snib(t, "show", name, "-o", "json")
	var doc struct {
		Holders []struct{ Held float64 }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(doc.Holders) == 0 {
		return 0
	}
	return time.Duration(doc.Holders[0].Held * float64(time.Second))
}

// TestWindsDownUnderTheLock ends a command whose child takes a while to end. The lock
// must not be free before.
func TestWindsDownUnderTheLock(t *testing.T) {
	t.Parallel()
	dir := newStore(t)
	log := filepath.Join(dir, "log")
	script := filepath.Join(dir, "slow")
	text := "trap 'sleep 0.7; echo ended >>" + log + "; exit' TERM\necho began >>" + log + "\nwhile :; do sleep 0.05; done\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, "snib", "run", "name", "--", "sh", "-c", "sh "+script+"; true")
	if !poll(func() bool { b, _ := os.ReadFile(log); return len(b) > 0 }) {
		t.Fatal("the command did not begin")
	}
	p.signal(syscall.SIGTERM)
	out, code := snib(t, "run", "-w", "20", "name", "--", "cat", log)
	if code != 0 || !strings.Contains(out, "ended") {
		t.Errorf("the next one came in (%d) and found %q, want that the last one had ended", code, out)
	}
	p.wait()
}

// TestFullPipe ends commands whose messages nobody reads, so that the pipe is full. The service
// breaks nothing without a record on standard error, which may also be a full disk.
func TestFullPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(newStore(t), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(pipe, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 4096))
	}
	for flags, want := range map[string]int{"--timeout 100ms": 124, "--max-hold 1s": 79} {
		args := append([]string{"sh", "-c", `exec snib run name "$@" 2>"$0"`, pipe}, strings.Fields(flags+" sleep 300")...)
		if code := start(t, args...).wait(); code != want {
			t.Errorf("snib run %s: exit code %d, want %d", flags, code, want)
		}
	}
	for _, stderr := range []string{pipe, "/dev/full"} {
		service := start(t, "sh", "-c", `exec snib serve --listen unix:"$0" 2>"$1"`, pipe+".sock", stderr)
		client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context,
			_, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", pipe+".sock")
		}}}
		defer client.CloseIdleConnections()
		await(t, "answer", func() bool {
			resp, err := client.Post("http://localhost/v1/break", "application/json", strings.NewReader(`{"name":"x","token":7,"reason":"test"}`))
			if err != nil {
				return false
			}
			if resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a break that can't be recorded on %s is answered %d, want 503", stderr, resp.StatusCode)
			}
			return true
		})
		service.signal(syscall.SIGTERM)
		if code := service.wait(); code != 0 {
			t.Errorf("snib serve: exit code %d, want 0", code)
		}
	}
}

// TestNobodyReads checks that services outlive the reader of their log, and that a hold whose grant
// nobody can read is released.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	setenv(t, "SNIB_URL", "sqlite:"+filepath.Join(dir, "locks.db"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	for _, service := range []string{"serve", "export"} {
		socket := filepath.Join(dir, service)
		cmd := command(t, "snib", service, "--listen", "unix:"+socket)
		cmd.Stderr = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "socket of "+service, func() bool { return exists(socket) })
		_ = cmd.Process.Signal(syscall.SIGTERM) // Wait tells whether it has ended before
		if err := cmd.Wait(); err != nil {
			t.Errorf("snib %s after TERM: %v", service, err)
		}
	}
	for _, args := range []string{"lock --try --ttl 1h", "hold --try --pid " + strconv.Itoa(os.Getpid())} {
		cmd := command(t, append([]string{"snib"}, strings.Fields(args+" deploy")...)...)
		cmd.Stdout = w
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 74 {
			t.Errorf("snib %s: %v, want exit code 74", args, err)
		}
		if out, code := snib(t, "run", "--try", "deploy", "--", "true"); code != 0 {
			t.Errorf("after snib %s, run --try = %d, %s; want 0", args, code, out)
		}
	}
}
