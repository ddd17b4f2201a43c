package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A proc is a running command.
type proc struct {
	*exec.Cmd
	t      *testing.T
	out    output // both streams
	exited chan struct{}
}

// An output is what a command has said until now.
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

// start runs a command without a terminal.
func start(t *testing.T, args ...string) *proc {
	t.Helper()
	heed()
	p := &proc{Cmd: exec.Command(args[0], args[1:]...), t: t, exited: make(chan struct{})}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // or who runs the tests on a terminal would lend it
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	go func() {
		_ = p.Cmd.Wait() // wait looks at the state
		close(p.exited)
	}()
	return p
}

// heed sees to it that commands heed the signals that this program was told to ignore: by nohup, or in the background of a script.
func heed() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // what has a handler is as it should be in a child
		}
	}
}

// end sees to it that nothing of a failed test is left.
func (p *proc) end() {
	_ = p.Process.Kill() // it may have ended
	<-p.exited
}

// wait waits for the end and returns the exit code.
func (p *proc) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%v has not ended", p.Args)
		return -1
	}
}

// says waits until the command has said something.
func (p *proc) says(text string) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("%q from %v", text, p.Args), func() bool { return strings.Contains(p.out.String(), text) })
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// snib runs a snib command to its end.
func snib(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	p := start(t, append([]string{"snib"}, args...)...)
	code = p.wait()
	return p.out.String(), code
}

// store gives the test a store of its own, and a folder.
func store(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	t.Setenv("SNIB_URL", "")
	t.Setenv("SNIB_HELD", "")
	return dir
}

func read(file string) string {
	text, _ := os.ReadFile(file) // one that isn't there yet is empty
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
		t.Fatalf("no %s within %v", what, patience)
	}
}

func awaitText(t *testing.T, file, want string) {
	t.Helper()
	await(t, fmt.Sprintf("%q in %s", want, file), func() bool { return strings.Contains(read(file), want) })
}

// procState is the state letter of a process, and its parent. A process that is gone has state 0.
func procState(pid int) (state byte, parent int) {
	_, rest, _ := strings.Cut(read(fmt.Sprintf("/proc/%d/stat", pid)), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0][0], parent
}

// gone reports whether a process has died, be it that nobody has taken note.
func gone(pid int) bool {
	state, _ := procState(pid)
	return state == 0 || state == 'Z' || state == 'X'
}

// A line of what the journal program writes.
type line struct {
	what  string
	pid   int
	token uint64
}

func readJournal(t *testing.T, file string) []line {
	t.Helper()
	var all []line
	for _, text := range strings.Split(strings.TrimSuffix(read(file), "\n"), "\n") {
		var l line
		if n, _ := fmt.Sscan(text, &l.what, &l.pid, &l.token); n == 3 {
			all = append(all, l)
		}
	}
	return all
}

// checkJournal reports where a child wrote beside the next holder's, and tokens that did not grow.
func checkJournal(t *testing.T, all []line) {
	t.Helper()
	var now line
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
	const procs, runs = 8, 50
	file := filepath.Join(store(t), "counter")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range procs {
		all.Go(func() {
			for range runs {
				out, err := exec.Command("snib", "run", "counter", "--", "increment", file).CombinedOutput()
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

// A crowd is a number of wrappers that want one lock all the time. Under each of them a child works for far longer than
// it will be let.
type crowd struct {
	log  string
	stop atomic.Bool
	all  sync.WaitGroup

	mu   sync.Mutex
	pids []int // by contender; 0 while there is none
}

func gather(t *testing.T, n int) *crowd {
	c := &crowd{log: filepath.Join(store(t), "journal"), pids: make([]int, n)}
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
	cmd := exec.Command("snib", "run", "--ttl", "1h", "name", "--", "journal", c.log, "10m")
	c.mu.Lock()
	if err := cmd.Start(); err != nil {
		t.Error(err)
		c.stop.Store(true)
	} else {
		c.pids[i] = cmd.Process.Pid
	}
	c.mu.Unlock()
	_ = cmd.Wait() // it is killed
	c.mu.Lock()
	c.pids[i] = 0
	c.mu.Unlock()
}

// kill kills a random wrapper, and returns its pid.
func (c *crowd) kill() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pid := c.pids[rand.N(len(c.pids))]
	if pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		return 0
	}
	return pid
}

// holder is the last child that began, and its wrapper.
func (c *crowd) holder(t *testing.T) (child line, wrapper int) {
	if all := readJournal(t, c.log); len(all) > 0 {
		child = all[len(all)-1]
		_, wrapper = procState(child.pid)
	}
	return child, wrapper
}

// TestKilledRuns kills random wrappers, holders and waiters: the child is gone with its wrapper, and the next holder
// comes soon.
func TestKilledRuns(t *testing.T) {
	c := gather(t, 4)
	var killed int
	for killed < 25 && !t.Failed() {
		time.Sleep(rand.N(60 * time.Millisecond)) // to hit all phases
		child, wrapper := c.holder(t)
		if pid := c.kill(); pid == 0 || pid != wrapper {
			continue
		}
		killed++
		await(t, "end of the child", func() bool { return gone(child.pid) })
		await(t, "next holder", func() bool { next, _ := c.holder(t); return next.token > child.token }) // neither a TTL nor the work took so little
	}
	c.stop.Store(true)
	over := make(chan struct{})
	go func() { c.all.Wait(); close(over) }()
	await(t, "end of the crowd", func() bool {
		c.kill()
		select {
		case <-over:
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

// TestHeirsKeepTheLock kills a wrapper whose child has started something: that runs on, and the lock stays taken, past
// its TTL, until it is gone.
func TestHeirsKeepTheLock(t *testing.T) {
	dir := store(t)
	ready, stop := filepath.Join(dir, "ready"), filepath.Join(dir, "stop")
	p := start(t, "snib", "run", "--ttl", "1s", "name", "--", "sh", "-c", "hold "+ready+" "+stop+"; exit")
	await(t, "grandchild", func() bool { return exists(ready) })
	p.signal(syscall.SIGKILL)
	if _, code := snib(t, "wait", "-w", "2s", "name"); code != 75 {
		t.Errorf("snib wait while a grandchild runs exits %d, want 75", code)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := snib(t, "run", "-w", "15s", "name", "--", "true"); code != 0 {
		t.Errorf("snib run after its end exits %d: %s", code, out)
	}
}

// TestStoppedTree stops the wrapper and its child until the lock is another's. When the wrapper goes on, it finds out
// before it lets the child go on, which it kills.
func TestStoppedTree(t *testing.T) {
	dir := store(t)
	log, done, over := filepath.Join(dir, "journal"), filepath.Join(dir, "done"), filepath.Join(dir, "over")
	p := start(t, "snib", "run", "--ttl", "1s", "name", "--", "journal", log, "10m", done)
	awaitText(t, log, "begin")
	child := readJournal(t, log)[0]
	p.signal(syscall.SIGSTOP)
	if err := syscall.Kill(-child.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := start(t, "snib", "run", "--ttl", "1m", "name", "--", "journal", log, "10m", over)
	await(t, "next holder", func() bool { return len(readJournal(t, log)) == 2 })
	touch(t, done) // if the child went on, it would say at once that it is done
	p.signal(syscall.SIGCONT)
	if code := p.wait(); code != 79 {
		t.Errorf("exit code = %d, want 79: %s", code, p.out.String())
	}
	if !gone(child.pid) {
		t.Errorf("the child is still there")
	}
	if out := p.out.String(); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "snib: lost name: ") {
		t.Errorf("message = %q, want one line that begins with snib: lost name:", out)
	}
	touch(t, over)
	if code := next.wait(); code != 0 {
		t.Errorf("the next holder exits %d: %s", code, next.out.String())
	}
	all := readJournal(t, log)
	checkJournal(t, all)
	if len(all) != 3 {
		t.Errorf("journal = %v, want begin, begin, end", all)
	}
}

// TestStoppedWrapper stops the wrapper alone: its child can't know, and is ended when the wrapper goes on.
func TestStoppedWrapper(t *testing.T) {
	dir := store(t)
	ready, stop := filepath.Join(dir, "ready"), filepath.Join(dir, "stop")
	p := start(t, "snib", "run", "--ttl", "1s", "name", "--", "hold", ready, stop)
	await(t, "child", func() bool { return exists(ready) })
	p.signal(syscall.SIGSTOP)
	if out, code := snib(t, "run", "-w", "10s", "name", "--", "true"); code != 0 {
		t.Fatalf("the next holder exits %d: %s", code, out)
	}
	p.signal(syscall.SIGCONT)
	if code := p.wait(); code != 79 {
		t.Errorf("exit code = %d, want 79: %s", code, p.out.String())
	}
}

func TestLoss(t *testing.T) {
	force := func(t *testing.T, _ string) {
		if out, code := snib(t, "release", "name", "--force", "--yes"); code != 0 {
			t.Fatalf("snib release exits %d: %s", code, out)
		}
	}
	none := func(*testing.T, string) {}
	unlink := func(t *testing.T, dir string) {
		for _, file := range []string{"locks.db", "locks.db-wal", "locks.db-shm", "locks.db.live"} {
			_ = os.Remove(filepath.Join(dir, "snib", file)) // not all of them are there
		}
	}
	const ended, killed = "terminated\n", "" // what the child has to say
	tests := []struct {
		name    string
		flags   []string
		lose    func(t *testing.T, dir string)
		message string
		says    string
	}{
		{"Forced", nil, force, "snib: lost name: ", killed},
		{"ForcedContinue", []string{"--on-lost", "continue"}, force, "the command goes on without it", ended},
		{"MaxHold", []string{"--max-hold", "4s" /* in three quarters of which the command has to start */}, none, "its --max-hold is nearly over; ending the command", ended},
		{"StoreGone", nil, unlink, "snib: about to lose name: its lease can't be renewed: ", ended},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := store(t)
			log := filepath.Join(dir, "signals")
			// A third of the TTL is how long nothing may run on a machine that is busy, and no hold be lost by that.
			args := append([]string{"snib", "run", "--ttl", "3s", "name"}, tt.flags...)
			p := start(t, append(args, "--", "sigs", log, "terminated")...)
			awaitText(t, log, "ready")
			tt.lose(t, dir)
			if tt.name == "ForcedContinue" {
				if out, code := snib(t, "run", "-w", "15s", "name", "--", "true"); code != 0 {
					t.Errorf("the next holder exits %d: %s", code, out)
				}
				p.says(tt.message)
				p.signal(syscall.SIGTERM)
			}
			if code := p.wait(); code != 79 {
				t.Errorf("exit code = %d, want 79: %s", code, p.out.String())
			}
			if out := p.out.String(); !strings.Contains(out, tt.message) {
				t.Errorf("message = %q, want %q in it", out, tt.message)
			}
			_, got, _ := strings.Cut(read(log), "\n")
			if got = strings.ReplaceAll(got, "continued\n", ""); got != tt.says {
				t.Errorf("signals = %q, want %q", got, tt.says)
			}
		})
	}
}

// TestSignals sends each signal that is passed on: it reaches the child once.
func TestSignals(t *testing.T) {
	log := filepath.Join(store(t), "signals")
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

// TestIgnoredSignals: what our parent ignores the command ignores too, as nohup wants it.
func TestIgnoredSignals(t *testing.T) {
	store(t)
	p := start(t, "sh", "-c", `trap "" HUP; snib run name -- sh -c 'kill -HUP $$; kill -HUP $PPID; echo survived'`)
	if code := p.wait(); code != 0 || p.out.String() != "survived\n" {
		t.Errorf("exit code = %d, output %q; want 0 and survived", code, p.out.String())
	}
}

// TestStoppedCommand: without a terminal too, a stopped command keeps its lock, past its TTL.
func TestStoppedCommand(t *testing.T) {
	store(t)
	p := start(t, "snib", "run", "--ttl", "1s", "name", "--", "sh", "-c", "kill -STOP $$; exit 3")
	p.says("the command was stopped")
	await(t, "hold longer than its TTL", func() bool { return heldFor(t, "name") > 2*time.Second })
	p.signal(syscall.SIGCONT)
	if code := p.wait(); code != 3 {
		t.Errorf("exit code = %d, want the command's 3: %s", code, p.out.String())
	}
}

// heldFor asks how long a lock has been held.
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

// TestWindsDownUnderTheLock ends a command whose child takes a while to end: the lock is free only after that.
func TestWindsDownUnderTheLock(t *testing.T) {
	dir := store(t)
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
