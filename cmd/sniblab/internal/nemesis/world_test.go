//go:build linux

package nemesis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// A quietTB is a test whose log does not contain the output of servers.
type quietTB struct{ testing.TB }

// Failed returns false: livetest logs the output of servers only if it returns true.
func (quietTB) Failed() bool { return false }

// A world is one set-up while it runs: its servers, its workers and its faults.
type world struct {
	t         testing.TB
	dir       string // of the logs
	r         *rand.Rand
	log       *history.Log
	faults    []fault
	lastFault string     // the name of the last fault of a run; "" for any
	exclusive bool       // no worker is stopped during a fault
	starting  sync.Mutex // held while keepRunning restarts a server, and while a clock is set
	ids       int64

	Job                   // of the workers; Name, Log and Seed are filled in
	direct  Store         // past all proxies, for operators and for the final check
	admin   driver.Driver // uses direct
	workers []*workerProcess
}

// A fault is something that can be done to a world. The fault has ended when run returns.
type fault struct {
	name string
	run  func(duration time.Duration) // duration is a wish; short faults ignore it
}

// A workerProcess is a worker. Its processes run one after the other, each with its
// own name and log.
type workerProcess struct {
	*livetest.Child
	number, incarnation int
	name                string
}

// newWorld returns a world without servers.
func newWorld(t testing.TB, dir string, seed uint64) *world {
	t.Helper()
	log, err := history.Create(filepath.Join(dir, "faults"), "")
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: quietTB{t}, dir: dir, r: rand.New(rand.NewPCG(seed, 1)), log: log}
}

func (w *world) addFault(name string, run func(duration time.Duration)) {
	w.faults = append(w.faults, fault{name, run})
}

// keepFaults removes all faults except those with these names.
func (w *world) keepFaults(names []string) {
	w.faults = slices.DeleteFunc(w.faults, func(f fault) bool { return !slices.Contains(names, f.name) })
	if len(w.faults) == 0 {
		w.t.Fatalf("the set-up has none of the faults %q", names)
	}
}

// logEvent logs an event at the current time.
func (w *world) logEvent(e history.Event) {
	e.At = now()
	w.log.Add(e)
}

// logFault calls do and logs a fault from before the call until after it. worker is
// the affected worker, or "".
func (w *world) logFault(name, worker string, do func()) {
	w.ids++
	id := w.ids
	w.logEvent(history.Event{Kind: history.Begin, Fault: name, Worker: worker, ID: id})
	do()
	w.logEvent(history.Event{Kind: history.End, Fault: name, Worker: worker, ID: id})
}

// startWorker starts a worker for the first time, or again.
func (w *world) startWorker(p *workerProcess) {
	w.t.Helper()
	p.incarnation++
	p.name = fmt.Sprintf("w%d.%d", p.number, p.incarnation)
	j := w.Job
	j.Name, j.Log, j.Seed, j.Calm = p.name, filepath.Join(w.dir, p.name), w.r.Uint64(), w.calmFile()
	j.Quiet = p.number == 0
	p.Child = livetest.StartChild(w.t, j)
}

func (w *world) calmFile() string { return filepath.Join(w.dir, "calm") }

// events returns the events of all logs so far.
func (w *world) events() []history.Event {
	w.t.Helper()
	logs := []string{filepath.Join(w.dir, "faults")}
	for _, p := range w.workers {
		for life := range p.incarnation {
			logs = append(logs, filepath.Join(w.dir, fmt.Sprintf("w%d.%d", p.number, life+1)))
		}
	}
	logs = slices.DeleteFunc(logs, func(path string) bool {
		_, err := os.Stat(path)
		return err != nil // the process was started and has not created its log yet
	})
	events, err := history.Read(logs...)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// startWorkers starts workers, and returns when one has got a lock: servers may grant
// nothing for a while after their start.
func (w *world) startWorkers(workers int) {
	w.t.Helper()
	for n := range workers {
		p := &workerProcess{number: n}
		w.workers = append(w.workers, p)
		w.startWorker(p)
	}
	for _, p := range w.workers {
		p.Expect("ready")
	}
	admin, err := w.direct.open(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	w.admin = admin
	w.t.Cleanup(func() { _ = admin.Close() }) // its servers may be gone
	const startTimeout = time.Minute
	for end := time.Now().Add(startTimeout); history.Check(w.events(), history.Rules{}).Acquired == 0; {
		if time.Now().After(end) {
			w.t.Fatalf("nobody has got a lock within %v", startTimeout)
		}
		time.Sleep(100 * time.Millisecond) // the logs grow slowly
	}
}

// run starts workers, injects faults for the given duration, heals them, and waits until all
// workers make progress, but at most for bound. Then it ends the workers, and checks that the
// store forgets them within leftoverBound.
func (w *world) run(workers int, duration, bound, leftoverBound time.Duration) {
	w.t.Helper()
	w.startWorkers(workers)
	w.injectFaults(duration)

	w.logEvent(history.Event{Kind: history.Heal})
	if err := os.WriteFile(w.calmFile(), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	for end := time.Now().Add(bound + time.Second); time.Now().Before(end) && history.Waiting(w.events()); {
		time.Sleep(100 * time.Millisecond) // the logs grow slowly
	}
	for _, p := range w.workers {
		p.End()
	}
	for _, p := range w.workers {
		p.Wait()
	}
	w.logLeftovers(leftoverBound)
}

// injectFaults runs one fault after the other.
func (w *world) injectFaults(duration time.Duration) {
	w.t.Helper()
	order := w.r.Perm(len(w.faults)) // each fault runs once before any is repeated
	for began := time.Now(); time.Since(began) < duration; {
		if len(order) == 0 {
			order = w.r.Perm(len(w.faults))
		}
		f := w.faults[order[0]]
		order = order[1:]
		duration := 300*time.Millisecond + time.Duration(w.r.Int64N(int64(ttl)*3/2))
		f.run(duration)
		if w.r.IntN(6) > 0 {
			w.pause(500 * time.Millisecond)
		} else {
			w.pause(longTTL) // consequences of the fault have time to appear
		}
	}
	for _, f := range w.faults {
		if f.name == w.lastFault {
			f.run(ttl)
		}
	}
}

// pause waits for a random time with the given mean.
func (w *world) pause(mean time.Duration) {
	time.Sleep(mean/2 + time.Duration(w.r.Int64N(int64(mean)))) // the time between two faults
}

// logLeftovers waits until the store shows no holders and no waiters any more, also none of
// killed workers, but at most for bound. Then it logs those that are left.
func (w *world) logLeftovers(bound time.Duration) {
	w.t.Helper()
	var left map[string]string
	for end := time.Now().Add(bound); ; {
		var err error
		if left, err = w.statusByName(); err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			if err != nil {
				w.t.Errorf("look for what is left: %v", err)
			}
			break
		}
		time.Sleep(100 * time.Millisecond) // leases end slowly
	}
	for name, what := range left {
		w.logEvent(history.Event{Kind: history.Left, Name: name, Err: what})
	}
}

// statusByName returns a description of the holders and waiters of each name.
func (w *world) statusByName() (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all := map[string]string{}
	add := func(s driver.Status) bool {
		if len(s.Holders)+len(s.Waiters) > 0 {
			all[s.Name] = fmt.Sprintf("holders %+v, waiters %+v", s.Holders, s.Waiters)
		}
		return true
	}
	err := w.admin.List(ctx, "", add)
	if !errors.Is(err, errors.ErrUnsupported) {
		return all, err
	}
	seen := map[string]bool{"": true}
	for _, e := range w.events() {
		if seen[e.Name] {
			continue
		}
		seen[e.Name] = true
		s, err := w.admin.Status(ctx, e.Name)
		if err != nil {
			return all, err
		}
		add(s)
	}
	return all, nil
}

// addWorkerFaults adds the faults of all set-ups: a worker is killed or stopped, or
// an operator breaks a lock.
func (w *world) addWorkerFaults() {
	w.addKillWorker()
	w.addStopWorker()
	w.addFault("break", func(time.Duration) { w.breakLock() })
}

// addStopWorker adds the fault that a worker is stopped for a while.
func (w *world) addStopWorker() {
	w.addFault(history.StopWorker, func(duration time.Duration) {
		p := w.workers[w.r.IntN(len(w.workers))]
		w.logFault(history.StopWorker, p.name, func() {
			p.Signal(syscall.SIGSTOP)
			time.Sleep(2 * duration) // the worker is stopped, possibly for longer than a lease
			p.Signal(syscall.SIGCONT)
		})
	})
}

// addKillWorker adds the fault that a worker is killed and started again.
func (w *world) addKillWorker() {
	w.addFault(history.KillWorker, func(duration time.Duration) {
		p := w.workers[w.r.IntN(len(w.workers))]
		w.logFault(history.KillWorker, p.name, p.Kill)
		time.Sleep(duration / 2) // the time without the worker
		w.startWorker(p)
		p.Expect("ready")
	})
}

// breakLock breaks one of the locks that are held now, as an operator would. In half of the
// cases it is a lock with a long TTL that was just renewed: its holder must be told before its
// next renewal, and there is no other fault in the meantime.
func (w *world) breakLock() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*longTTL)
	defer cancel()
	var s driver.Status
	if w.Mixed && w.r.IntN(2) == 0 {
		// Poll until such a lock is held, or until half of longTTL is over.
		for end := time.Now().Add(longTTL / 2); s.Name == "" && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			held := w.heldLocks(ctx)
			if i := slices.IndexFunc(held,
				func(s driver.Status) bool { return s.Holders[0].Left > longTTL-hintBound/10 }); i >= 0 {
				s = held[i]
			}
		}
		defer time.Sleep(hintBound + 500*time.Millisecond) // no other fault for this time
	}
	if held := w.heldLocks(ctx); s.Name == "" && len(held) > 0 {
		s = held[w.r.IntN(len(held))]
	}
	for _, h := range s.Holders {
		w.ids++
		id := w.ids
		w.logEvent(history.Event{Kind: history.Begin, Fault: "break", Name: s.Name, ID: id})
		token := h.Token
		// Break fails if the hold has ended.
		if err := w.admin.Break(ctx, s.Name, h.ID); err != nil {
			token = 0
		}
		w.logEvent(history.Event{Kind: history.End, Fault: "break", ID: id, Token: token})
	}
}

// heldLocks returns the locks that are held, or some of them if the listing fails.
func (w *world) heldLocks(ctx context.Context) []driver.Status {
	var held []driver.Status
	// A partial result is enough.
	_ = w.admin.List(ctx, "", func(s driver.Status) bool {
		if len(s.Holders) > 0 {
			held = append(held, s)
		}
		return true
	})
	return held
}

// A server can be killed, restarted, stopped and resumed.
type server interface {
	Kill()
	Restart()
	Hang()
	Resume()
}

// addServerFaults adds the faults of servers of which one at a time may fail. A
// worker may be stopped at the same time.
func (w *world) addServerFaults(servers ...server) {
	w.lastFault = cmp.Or(w.lastFault, "stop-server")
	w.addFault("kill-server", func(duration time.Duration) {
		s := servers[w.r.IntN(len(servers))]
		w.logFault("kill-server", "", func() {
			s.Kill()
			if w.r.IntN(2) == 0 { // otherwise it is back before most workers have noticed
				w.waitDuringFault(duration / 2)
			}
			s.Restart()
		})
	})
	w.addFault("stop-server", func(duration time.Duration) {
		s := servers[w.r.IntN(len(servers))]
		w.logFault("stop-server", "", func() {
			s.Hang()
			w.waitDuringFault(duration)
			s.Resume()
		})
	})
}

// waitDuringFault waits while a fault is active. Sometimes it stops a worker in that time.
func (w *world) waitDuringFault(duration time.Duration) {
	if w.exclusive || w.r.IntN(3) > 0 {
		time.Sleep(duration) // the fault lasts for this time
		return
	}
	p := w.workers[w.r.IntN(len(w.workers))]
	time.Sleep(duration / 4) // the fault begins first
	w.logFault(history.StopWorker, p.name, func() {
		p.Signal(syscall.SIGSTOP)
		time.Sleep(duration / 2) // the worker is stopped for this time
		p.Signal(syscall.SIGCONT)
	})
	time.Sleep(duration / 4) // the fault ends last
}

// addProxies sets the store. It puts a proxy before each address, through which the workers reach
// the store, and adds the network faults.
func (w *world) addProxies(kind string, addrs ...string) {
	w.t.Helper()
	var proxies []*livetest.Proxy
	var through []string
	for _, addr := range addrs {
		p := livetest.NewProxy(w.t, addr)
		proxies, through = append(proxies, p), append(through, p.Addr())
	}
	w.addFault("cut", func(time.Duration) {
		w.logFault("cut", "", func() {
			for _, p := range proxies {
				p.Cut()
			}
		})
	})
	w.addFault("sever", func(duration time.Duration) {
		p := proxies[w.r.IntN(len(proxies))]
		w.logFault("sever", "", func() {
			heal := p.Sever()
			w.waitDuringFault(duration)
			heal()
		})
	})
	w.addFault("stall", func(duration time.Duration) {
		p := proxies[w.r.IntN(len(proxies))]
		w.logFault("stall", "", func() {
			heal := p.Stall()
			w.waitDuringFault(duration)
			heal()
		})
	})
	w.direct, w.Store = Store{Kind: kind, Addrs: addrs}, Store{Kind: kind, Addrs: through}
}

// summarize returns the counts of a report for its line in the table.
func summarize(r history.Report) (faults int, bad, allowed map[history.Fact]int) {
	bad, allowed = map[history.Fact]int{}, map[history.Fact]int{}
	for _, n := range r.Faults {
		faults += n
	}
	for _, v := range r.Violations {
		if v.Allowed == "" {
			bad[v.Fact]++
		} else {
			allowed[v.Fact]++
		}
	}
	return faults, bad, allowed
}

// formatCounts returns the counts by fact as text.
func formatCounts(by map[history.Fact]int) string {
	var all []string
	for _, f := range history.Facts() {
		if by[f] > 0 {
			all = append(all, fmt.Sprintf("%s %d", f, by[f]))
		}
	}
	if len(all) == 0 {
		return "0"
	}
	return strings.Join(all, ", ")
}
