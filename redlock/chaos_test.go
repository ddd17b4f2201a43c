//go:build linux

package redlock_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// The flag -chaos is how long TestChaos runs. "make chaos" sets it to a minute.
var chaos = flag.Duration("chaos", 12*time.Second, "how long the servers of TestChaos are killed and stopped")

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, contender.run)) }

const (
	chaosTTL   = 800 * time.Millisecond
	chaosLock  = "the lock"
	contenders = 4
)

// chaosOptions returns the options of all contenders.
func chaosOptions() []redlock.Option {
	return []redlock.Option{redlock.MaxTTL(chaosTTL), redlock.NodeTimeout(100 * time.Millisecond)}
}

// TestChaos has four processes compete for a lock on five servers without persistence. Every
// second it kills a random minority of the servers, and in between it stops servers and
// processes. No token is a duplicate or out of order, no two processes hold the lock at once by
// their own clocks, and no node frees a lock for anybody but its owner. After the faults, every
// process gets the lock, once those that have had it leave it to the others.
func TestChaos(t *testing.T) {
	c := start(t, 5)
	c.opts = chaosOptions()
	c.init(t)
	w := watch(t, c)
	dir := t.TempDir()
	var children []*livetest.Child
	var files []string
	for i := range contenders {
		f := contender{Number: i, File: filepath.Join(dir, strconv.Itoa(i))}
		for _, n := range c.nodes {
			f.Servers = append(f.Servers, n.Addr())
		}
		children, files = append(children, livetest.StartChild(t, f)), append(files, f.File)
	}
	least := int(chaos.Seconds()) // or it proves little
	began := time.Now()
	kills, stops := injectFaults(t, c, children, func() bool { // a busy machine may take longer
		return len(histories(t, files)) >= least && w.count() >= least || time.Since(began) > 5**chaos
	})
	lasted, healed := time.Since(began), clock()
	// Judge now, because a violation may be the reason why nobody gets the lock any more.
	for _, wrong := range judge(histories(t, files)) {
		t.Error(wrong)
	}
	// Redlock is not fair: while others take the lock again at once, a process may wait for ever.
	// So each one leaves when it has had the lock, and at last the slowest is alone.
	livetest.Await(t, "lock for everybody", func() (err error) {
		for i, file := range files {
			if all := history(t, file); len(all) == 0 || all[len(all)-1].Got < healed {
				err = fmt.Errorf("process %d has not got the lock since all is well again", i)
			} else {
				children[i].End()
			}
		}
		return err
	})
	took := time.Duration(clock() - healed)
	for _, child := range children {
		child.End()
	}
	for _, child := range children {
		child.Wait()
	}
	all, frees := histories(t, files), w.end()
	t.Logf("%v: %d kills, %d stops, %d acquisitions, %d keys freed; then everybody had the lock within %v", lasted, kills,
		stops, len(all), frees, took)
	if !t.Failed() {
		for _, wrong := range judge(all) {
			t.Error(wrong)
		}
	}
	if len(all) < least || frees < least {
		t.Errorf("%d acquisitions and %d keys freed in %v: there is not much that could go wrong", len(all), frees, lasted)
	}
}

// TestAmnesia kills a majority of the servers under a hold, one after the other. They come back
// without memory. Still, nobody gets the lock while the hold is valid, and the next holder has
// a greater token.
func TestAmnesia(t *testing.T) {
	ttl := 4 * time.Second // time to restart three servers and to try
	for !amnesiaRound(t, ttl) {
		if ttl *= 2; ttl > time.Minute {
			t.Fatal("each hold was over before anybody tried")
		}
	}
}

// amnesiaRound is one try of TestAmnesia. It reports whether anybody tried in time.
func amnesiaRound(t *testing.T, ttl time.Duration) (inTime bool) {
	t.Helper()
	c := start(t, 5)
	c.opts = []redlock.Option{redlock.MaxTTL(ttl)}
	c.init(t)
	holder, other := open(t, c.servers, c.opts...), open(t, c.servers, c.opts...)
	l := acquire(t, holder, request(chaosLock, "holder", ttl))
	for _, n := range c.nodes[:3] {
		n.Kill()
		n.Restart()
	}
	end, tries := l.Grant().Start.Add(quorum.Validity(ttl)), 0
	for n := 0; ; n++ {
		got, err := other.Acquire(t.Context(), driver.Request{Name: chaosLock, ID: fmt.Sprint("other ", n), TTL: ttl,
			NoWait: true})
		if end.Reached(driver.Now()) {
			break
		}
		if err == nil {
			t.Fatalf("the lock is granted, with token %d, while another hold, with token %d, is valid for another %v",
				got.Grant().Token, l.Grant().Token,
				end.Left(driver.Now()))
		}
		tries++
		time.Sleep(5 * time.Millisecond) // no busy loop
	}
	if tries == 0 {
		t.Logf("a hold of %v was over before anybody tried", ttl)
		return false
	}
	next, err := other.Acquire(within(t, ttl+testTimeout), request(chaosLock, "next", ttl))
	if err != nil {
		t.Fatalf("Acquire when the hold was over = %v", err)
	}
	if next.Grant().Token <= l.Grant().Token {
		t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
	}
	return true
}

// injectFaults kills one or two of five servers every second, and stops a server or a process
// in between. It runs for the duration of the flag, and until enough returns true.
func injectFaults(t *testing.T, c *cluster, children []*livetest.Child, enough func() bool) (kills, stops int) {
	const halfRound = 500 * time.Millisecond
	began := time.Now()
	for round := 0; time.Since(began) < *chaos || !enough(); round++ {
		order := rand.Perm(len(c.nodes))
		var restarting sync.WaitGroup
		for _, i := range order[:1+rand.IntN(2)] {
			c.nodes[i].Kill()
			kills++
			restarting.Go(func() { c.nodes[i].Restart() })
		}
		restarting.Wait()
		// The faults come at a fixed pace.
		time.Sleep(time.Until(began.Add(time.Duration(2*round+1) * halfRound)))
		d := time.Duration(rand.Int64N(int64(halfRound)))
		stops++
		if i := order[4]; rand.IntN(2) == 0 {
			c.nodes[i].Hang()
			time.Sleep(d) // how long it is stopped
			c.nodes[i].Resume()
		} else {
			child := children[rand.IntN(len(children))]
			child.Signal(syscall.SIGSTOP)
			time.Sleep(d) // as above
			child.Signal(syscall.SIGCONT)
		}
		// As above.
		time.Sleep(time.Until(began.Add(time.Duration(2*round+2) * halfRound)))
	}
	return kills, stops
}

// A contender is the job of a process: it takes the lock and releases it, over and over.
type contender struct {
	Number  int
	Servers []string
	File    string // for its records
}

// A holdRecord describes one hold. Its times are in ns, by a clock that all processes share.
type holdRecord struct {
	ID    string
	Token uint64
	Began int64 // Acquire was called
	Got   int64 // it returned

	// End is when Release was called, or when the validity ended by the holder's clock if
	// that was earlier.
	End int64
}

func (f contender) run(ctx context.Context) error {
	var servers []rueidis.ClientOption
	for _, addr := range f.Servers {
		servers = append(servers, rueidis.ClientOption{InitAddress: []string{addr}, Password: password})
	}
	out, err := os.Create(f.File)
	if err != nil {
		return err
	}
	d, err := redlock.Open(ctx, servers, chaosOptions()...)
	if err != nil {
		return err
	}
	defer d.Close()
	for n := 0; ctx.Err() == nil; n++ {
		got, ok := f.holdOnce(ctx, d, fmt.Sprintf("fighter %d, turn %d", f.Number, n))
		if !ok {
			continue
		}
		if err := json.NewEncoder(out).Encode(got); err != nil {
			return err
		}
	}
	return out.Close()
}

// holdOnce takes the lock if it can, holds it for a while, and releases it.
func (f contender) holdOnce(ctx context.Context, d driver.Driver, id string) (holdRecord, bool) {
	rec := holdRecord{ID: id, Began: clock()}
	waiting, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l, err := d.Acquire(waiting, driver.Request{Name: chaosLock, ID: id, TTL: chaosTTL})
	if err != nil {
		return holdRecord{}, false // no majority, or held by another
	}
	rec.Token, rec.Got = l.Grant().Token, clock()
	end := f.hold(d, l)
	rec.End = clock()
	if left := end.Left(driver.Now()); left < 0 {
		rec.End += int64(left)
	}
	releasing, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = l.Release(releasing) // it may be lost, or servers may be down
	return rec, true
}

// hold holds the lock for a random time, or until it is lost, and renews it meanwhile. It
// returns the end of its validity.
func (f contender) hold(d driver.Driver, l driver.Lease) driver.Instant {
	end := l.Grant().Start.Add(quorum.Validity(chaosTTL))
	mean := chaosTTL / 20
	if rand.IntN(8) == 0 {
		mean = chaosTTL
	}
	for stay := time.Duration(rand.ExpFloat64() * float64(mean)); stay > 0; stay -= chaosTTL / 3 {
		time.Sleep(min(stay, chaosTTL/3)) // the work under the lock
		if stay <= chaosTTL/3 {
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), max(0, end.Left(driver.Now())))
		r := d.Renew(ctx, []driver.Lease{l})[0]
		cancel()
		if r.Err == nil && !end.Reached(driver.Now()) {
			end = r.Start.Add(quorum.Validity(chaosTTL))
		} else if end.Reached(driver.Now()) || errors.Is(r.Err, driver.ErrLost) {
			break
		}
	}
	return end
}

// clock reads CLOCK_MONOTONIC, which all processes share.
func clock() int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// history reads the records of a contender. The last line may be incomplete; it is skipped.
func history(t *testing.T, file string) (all []holdRecord) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var rec holdRecord
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
	return all
}

// histories reads the records of all contenders.
func histories(t *testing.T, files []string) (all []holdRecord) {
	t.Helper()
	for _, file := range files {
		all = append(all, history(t, file)...)
	}
	return all
}

// judge returns the violations in a history.
func judge(all []holdRecord) (wrong []string) {
	slices.SortFunc(all, func(a, b holdRecord) int { return cmp.Compare(a.Got, b.Got) })
	ids := make(map[uint64]string)
	var latest holdRecord // the one whose validity ended last so far
	for i, b := range all {
		if other, ok := ids[b.Token]; ok {
			wrong = append(wrong, fmt.Sprintf("%s and %s have token %d", other, b.ID, b.Token))
		}
		ids[b.Token] = b.ID
		for _, a := range all[:i] {
			if a.Got < b.Began && a.Token >= b.Token {
				wrong = append(wrong, fmt.Sprintf("%s has token %d, and %s, which began later, has %d", a.ID, a.Token, b.ID,
					b.Token))
			}
		}
		if b.Got < latest.End && b.Got < b.End {
			wrong = append(wrong, fmt.Sprintf("%s has the lock when %s has it for another %v", b.ID, latest.ID,
				time.Duration(latest.End-b.Got)))
		}
		if b.End > latest.End {
			latest = b
		}
	}
	return wrong
}

func TestJudge(t *testing.T) {
	tests := []struct {
		name string
		all  []holdRecord
		want string
	}{
		{"Fine", []holdRecord{{"a", 5, 0, 10, 20}, {"b", 6, 5, 20, 30}, {"c", 9, 0, 40, 50}}, ""},
		{"OutOfOrderButAtOnce", []holdRecord{{"a", 7, 0, 10, 20}, {"b", 6, 5, 20, 30}}, ""},
		{"Duplicate", []holdRecord{{"a", 5, 0, 10, 20}, {"b", 5, 5, 20, 30}}, "a and b have token 5"},
		{"OutOfOrder", []holdRecord{{"b", 6, 11, 20, 30}, {"a", 7, 0, 10, 20}},
			"a has token 7, and b, which began later, has 6"},
		{"Overlap", []holdRecord{{"a", 5, 0, 10, 21}, {"b", 6, 5, 20, 30}}, "b has the lock when a has it for another 1ns"},
		{"LongOverlap", []holdRecord{{"a", 5, 0, 10, 60}, {"b", 6, 5, 70, 80}, {"c", 7, 5, 59, 60}}, "c has the lock when a"},
	}
	for _, tt := range tests {
		got := judge(tt.all)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A watcher reads all commands of all servers, and checks that keys are deleted only on behalf
// of their grants.
type watcher struct {
	done       chan struct{}
	stop       func() // closes done, once
	background sync.WaitGroup
	report     func(format string, args ...any) // of keys that were not freed in their grant's name
	mu         sync.Mutex
	frees      int
}

func watch(t *testing.T, c *cluster) *watcher {
	w := &watcher{report: t.Errorf, done: make(chan struct{})}
	w.stop = sync.OnceFunc(func() { close(w.done) })
	t.Cleanup(func() { w.end() })
	for _, n := range c.nodes {
		ready := make(chan struct{})
		w.background.Go(func() { w.monitor(n, sync.OnceFunc(func() { close(ready) })) })
		<-ready
	}
	return w
}

// end stops the watcher, and returns how often a key was freed.
func (w *watcher) end() int {
	w.stop()
	w.background.Wait()
	return w.frees
}

// count returns how often a key was freed so far.
func (w *watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frees
}

// monitor watches a server through all its runs. It calls ready when it can see the
// server's commands.
func (w *watcher) monitor(n *redistest.Node, ready func()) {
	for retry := time.NewTicker(5 * time.Millisecond); ; <-retry.C {
		conn, err := net.Dial("tcp", n.Addr())
		if err == nil {
			stop := make(chan struct{})
			w.background.Go(func() {
				select {
				case <-w.done:
				case <-stop:
				}
				conn.Close()
			})
			// If it fails, there is nothing to read either.
			_, _ = fmt.Fprintf(conn, "HELLO 2 AUTH default %s\r\nMONITOR\r\n", password)
			w.readMonitor(conn, ready)
			close(stop)
		}
		select {
		case <-w.done:
			retry.Stop()
			return
		default:
		}
	}
}

// readMonitor reads the output of MONITOR for one run of a server: the calls of the scripts, and
// the commands of the scripts.
func (w *watcher) readMonitor(conn io.Reader, ready func()) {
	word := regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	in := bufio.NewReader(conn)
	var call []string // of the script, in progress
	var nonce string  // of the key, if known
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			// The last line may have been cut off when the server was killed.
			return
		}
		if line == "+OK\r\n" {
			ready()
			continue
		}
		words := word.FindAllString(line, -1)
		for i, q := range words {
			if text, err := strconv.Unquote(q); err == nil {
				words[i] = text
			}
		}
		switch {
		case len(words) < 2:
		case strings.HasPrefix(strings.ToUpper(words[0]), "EVAL"):
			call = words
		case words[1] != chaosLock:
		case words[0] == "SET" && len(words) > 2:
			nonce, _, _ = strings.Cut(words[2], " ")
		case words[0] == "DEL":
			w.checkFree(call, nonce)
			nonce = ""
		}
	}
}

// TestWatcher shows the watcher deletions that are in the grant's name, and others.
func TestWatcher(t *testing.T) {
	const at, lua = `1.0 [0 127.0.0.1:1] `, `1.0 [0 lua] `
	set := func(nonce string) string {
		return lua + `"SET" "` + chaosLock + `" "` + nonce + ` 0 {" "PX" "1000" "NX"`
	}
	free := func(nonce string) string {
		return at + `"EVALSHA" "sha" "2" "snib.redlock" "` + chaosLock + `" "f" "` + nonce + ` " "0"`
	}
	const del = lua + `"DEL" "` + chaosLock + `"`
	for name, tt := range map[string]struct {
		lines []string
		wrong bool
	}{
		"Own":       {[]string{set("a"), free("a"), del}, false},
		"Anothers":  {[]string{set("a"), free("b"), del}, true},
		"Successor": {[]string{set("a"), set("b"), free("b"), del}, false},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := 0
			w := &watcher{report: func(string, ...any) { wrong++ }}
			w.readMonitor(strings.NewReader("+"+strings.Join(tt.lines, "\r\n+")+"\r\n"), func() {})
			if w.frees != 1 || (wrong > 0) != tt.wrong {
				t.Errorf("%d keys freed, of which %d not in their grant's name, want one: wrong is %v", w.frees, wrong, tt.wrong)
			}
		})
	}
}

// TestWatcherCutOff checks that a line that was cut off when the server was killed is ignored.
func TestWatcherCutOff(t *testing.T) {
	for _, line := range []string{`"SET" "` + chaosLock + `" "nonce id" "PX" "1"`, `"DEL" "` + chaosLock + `"`} {
		for n := range len(line) + 1 {
			w := &watcher{report: t.Errorf}
			w.readMonitor(strings.NewReader("1.2 [0 lua] "+line[:n]), func() {})
			if w.frees > 0 {
				t.Errorf("a key is freed by %q", line[:n])
			}
		}
	}
}

// checkFree checks that the script call that deleted the key asked for that in the
// grant's name.
func (w *watcher) checkFree(call []string, nonce string) {
	w.mu.Lock()
	w.frees++
	w.mu.Unlock()
	if nonce != "" && !asksToFree(call, nonce) {
		w.report("the key of %s is deleted by %q", nonce, call)
	}
}

// asksToFree reports whether a call of a script asks to free the key in the grant's name.
func asksToFree(call []string, nonce string) bool {
	for i := range max(0, len(call)-2) {
		if call[i] == "f" && strings.TrimSuffix(call[i+1], " ") == nonce {
			return true
		}
	}
	return false
}
