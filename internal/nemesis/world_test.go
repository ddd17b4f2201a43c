//go:build linux

package nemesis

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/nemesis/history"
)

// terse is a test in whose log servers don't write what they have to say.
type terse struct{ testing.TB }

// Failed is false: livetest asks it whether what servers wrote is wanted.
func (terse) Failed() bool { return false }

// A world is one set-up while it runs: its servers, its workers and its faults.
type world struct {
	t      testing.TB
	dir    string // of the logs
	r      *rand.Rand
	log    *history.Log
	faults []fault
	last   string // the fault that comes last; "" for any
	alone  bool   // nothing else is broken during a fault
	ids    int64

	Job                   // of the workers; Name, Log and Seed are filled in
	direct  Store         // past all proxies, for operators and for the last look
	admin   driver.Driver // over direct
	workers []*proc
}

// A fault is something that can be done to a world. It begins, lasts for as long as it likes, and has ended when it returns.
type fault struct {
	name string
	run  func(last time.Duration) // how long it is to last, if it is not a matter of a moment
}

// A proc is a worker: one process after the other, each with a name and a log of its own.
type proc struct {
	*livetest.Child
	number, life int
	name         string
}

// newWorld makes a world without servers.
func newWorld(t testing.TB, dir string, seed uint64) *world {
	t.Helper()
	log, err := history.Create(filepath.Join(dir, "faults"), "")
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: terse{t}, dir: dir, r: rand.New(rand.NewPCG(seed, 1)), log: log}
}

func (w *world) add(name string, run func(last time.Duration)) {
	w.faults = append(w.faults, fault{name, run})
}

// keep leaves the faults with these names.
func (w *world) keep(names []string) {
	w.faults = slices.DeleteFunc(w.faults, func(f fault) bool { return !slices.Contains(names, f.name) })
	if len(w.faults) == 0 {
		w.t.Fatalf("the set-up has none of the faults %q", names)
	}
}

// event logs something that has no duration by itself.
func (w *world) event(e history.Event) {
	e.At = now()
	w.log.Add(e)
}

// during logs a fault, to a worker or to none, from before do until after it.
func (w *world) during(name, worker string, do func()) {
	w.ids++
	id := w.ids
	w.event(history.Event{Kind: history.Begin, Fault: name, Worker: worker, ID: id})
	do()
	w.event(history.Event{Kind: history.End, Fault: name, Worker: worker, ID: id})
}

// start starts a worker, for the first time or again.
func (w *world) start(p *proc) {
	w.t.Helper()
	p.life++
	p.name = fmt.Sprintf("w%d.%d", p.number, p.life)
	j := w.Job
	j.Name, j.Log, j.Seed, j.Calm = p.name, filepath.Join(w.dir, p.name), w.r.Uint64(), w.calm()
	j.Quiet = p.number == 0
	if p.number == 1 {
		j.Release = time.Second
	}
	p.Child = livetest.StartChild(w.t, j)
}

func (w *world) calm() string { return filepath.Join(w.dir, "calm") }

// events are those of all logs so far.
func (w *world) events() []history.Event {
	w.t.Helper()
	logs := []string{filepath.Join(w.dir, "faults")}
	for _, p := range w.workers {
		for life := range p.life {
			logs = append(logs, filepath.Join(w.dir, fmt.Sprintf("w%d.%d", p.number, life+1)))
		}
	}
	logs = slices.DeleteFunc(logs, func(path string) bool {
		_, err := os.Stat(path)
		return err != nil // it has only been started
	})
	events, err := history.Read(logs...)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// begin starts workers, and returns when one has got a lock: servers may grant nothing for a while after they were started.
func (w *world) begin(workers int) {
	w.t.Helper()
	for n := range workers {
		p := &proc{number: n}
		w.workers = append(w.workers, p)
		w.start(p)
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
	const patience = time.Minute
	for end := time.Now().Add(patience); history.Check(w.events(), history.Rules{}).Acquired == 0; {
		if time.Now().After(end) {
			w.t.Fatalf("nobody has got a lock within %v", patience)
		}
		time.Sleep(100 * time.Millisecond) // the logs grow slowly
	}
}

// run lets workers work, breaks things for so long, heals them, and waits until everybody goes on,
// or for the bound. Then it ends the workers, and has the store forget them within the time that is
// left to it.
func (w *world) run(workers int, long, bound, left time.Duration) {
	w.t.Helper()
	w.begin(workers)
	w.torment(long)

	w.event(history.Event{Kind: history.Heal})
	if err := os.WriteFile(w.calm(), nil, 0o600); err != nil {
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
	w.leftovers(left)
}

// torment has fault after fault, the workers' among them.
func (w *world) torment(long time.Duration) {
	w.t.Helper()
	order := w.r.Perm(len(w.faults)) // each comes before one comes again
	for began := time.Now(); time.Since(began) < long; {
		if len(order) == 0 {
			order = w.r.Perm(len(w.faults))
		}
		f := w.faults[order[0]]
		order = order[1:]
		last := 300*time.Millisecond + time.Duration(w.r.Int64N(int64(ttl)*3/2))
		f.run(last)
		if w.r.IntN(6) > 0 {
			w.pause(500 * time.Millisecond)
		} else {
			w.pause(longTTL) // what a fault has left behind has time to come to light
		}
	}
	for _, f := range w.faults {
		if f.name == w.last {
			f.run(ttl)
		}
	}
}

// pause waits for about so long.
func (w *world) pause(mean time.Duration) {
	time.Sleep(mean/2 + time.Duration(w.r.Int64N(int64(mean)))) // the pace of the trouble
}

// leftovers logs what the store still shows so long after all workers have ended, when also those
// that were killed are forgotten.
func (w *world) leftovers(bound time.Duration) {
	w.t.Helper()
	var left map[string]string
	for end := time.Now().Add(bound); ; {
		var err error
		if left, err = w.shown(); err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			if err != nil {
				w.t.Errorf("look for what is left: %v", err)
			}
			break
		}
		time.Sleep(100 * time.Millisecond) // leases lapse slowly
	}
	for name, what := range left {
		w.event(history.Event{Kind: history.Left, Name: name, Err: what})
	}
}

// shown is what the store shows of each name.
func (w *world) shown() (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all := map[string]string{}
	err := w.admin.(driver.Inspector).List(ctx, "", func(s driver.Status) bool {
		if len(s.Holders)+len(s.Waiters) > 0 {
			all[s.Name] = fmt.Sprintf("holders %+v, waiters %+v", s.Holders, s.Waiters)
		}
		return true
	})
	return all, err
}

// workerFaults are those of all set-ups: a worker dies or stops, and an operator breaks a lock.
func (w *world) workerFaults() {
	w.add(history.KillWorker, func(last time.Duration) {
		p := w.workers[w.r.IntN(len(w.workers))]
		w.during(history.KillWorker, p.name, p.Kill)
		time.Sleep(last / 2) // so long it is gone
		w.start(p)
		p.Expect("ready")
	})
	w.add(history.StopWorker, func(last time.Duration) {
		p := w.workers[w.r.IntN(len(w.workers))]
		w.during(history.StopWorker, p.name, func() {
			p.Signal(syscall.SIGSTOP)
			time.Sleep(2 * last) // so long it is stopped, which may be longer than a lease
			p.Signal(syscall.SIGCONT)
		})
	})
	w.add("break", func(time.Duration) { w.breakLock() })
}

// breakLock frees one of the locks that are held at the moment, as an operator does who knows
// better. Half of the time it is one that was just renewed for long: its holder is to be told
// before its next renewal, and nothing else is broken meanwhile.
func (w *world) breakLock() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*longTTL)
	defer cancel()
	var s driver.Status
	if w.Mixed && w.r.IntN(2) == 0 {
		for end := time.Now().Add(longTTL / 2); s.Name == "" && time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // it polls
			held := w.held(ctx)
			if i := slices.IndexFunc(held, func(s driver.Status) bool { return s.Holders[0].Left > longTTL-hint/10 }); i >= 0 {
				s = held[i]
			}
		}
		defer time.Sleep(hint + 500*time.Millisecond) // nothing else is broken for so long
	}
	if held := w.held(ctx); s.Name == "" && len(held) > 0 {
		s = held[w.r.IntN(len(held))]
	}
	for _, h := range s.Holders {
		w.ids++
		id := w.ids
		w.event(history.Event{Kind: history.Begin, Fault: "break", Name: s.Name, ID: id})
		token := h.Token
		if err := w.admin.(driver.Inspector).Break(ctx, s.Name, h.Owner, h.Token); err != nil { // the hold may have ended
			token = 0
		}
		w.event(history.Event{Kind: history.End, Fault: "break", ID: id, Token: token})
	}
}

// held are the locks that are held, or some of them if something goes wrong.
func (w *world) held(ctx context.Context) []driver.Status {
	var held []driver.Status
	_ = w.admin.(driver.Inspector).List(ctx, "", func(s driver.Status) bool { // what it shows is enough
		if len(s.Holders) > 0 {
			held = append(held, s)
		}
		return true
	})
	return held
}

// A server can be killed, started again, and stopped.
type server interface {
	Kill()
	Restart()
	Hang()
	Resume()
}

// serverFaults are those of servers of which one at a time may fail. A worker may die or stop at the same time.
func (w *world) serverFaults(servers ...server) {
	w.last = cmp.Or(w.last, "stop-server")
	w.add("kill-server", func(last time.Duration) {
		s := servers[w.r.IntN(len(servers))]
		w.during("kill-server", "", func() {
			s.Kill()
			if w.r.IntN(2) == 0 { // else it is back before most have noticed
				w.meanwhile(last / 2)
			}
			s.Restart()
		})
	})
	w.add("stop-server", func(last time.Duration) {
		s := servers[w.r.IntN(len(servers))]
		w.during("stop-server", "", func() {
			s.Hang()
			w.meanwhile(last)
			s.Resume()
		})
	})
}

// meanwhile waits while something else is broken; sometimes a worker is stopped in that time.
func (w *world) meanwhile(last time.Duration) {
	if w.alone || w.r.IntN(3) > 0 {
		time.Sleep(last) // so long the fault lasts
		return
	}
	p := w.workers[w.r.IntN(len(w.workers))]
	time.Sleep(last / 4) // the fault comes first
	w.during(history.StopWorker, p.name, func() {
		p.Signal(syscall.SIGSTOP)
		time.Sleep(last / 2) // so long the worker is stopped
		p.Signal(syscall.SIGCONT)
	})
	time.Sleep(last / 4) // and is over last
}

// proxy puts a proxy before each address, and adds the faults of a network.
func (w *world) proxy(addrs ...string) []string {
	w.t.Helper()
	var proxies []*livetest.Proxy
	var through []string
	for _, addr := range addrs {
		p := livetest.NewProxy(w.t, addr)
		proxies, through = append(proxies, p), append(through, p.Addr())
	}
	w.add("cut", func(time.Duration) {
		w.during("cut", "", func() {
			for _, p := range proxies {
				p.Cut()
			}
		})
	})
	w.add("sever", func(last time.Duration) {
		p := proxies[w.r.IntN(len(proxies))]
		w.during("sever", "", func() {
			heal := p.Sever()
			w.meanwhile(last)
			heal()
		})
	})
	w.add("stall", func(last time.Duration) {
		p := proxies[w.r.IntN(len(proxies))]
		w.during("stall", "", func() {
			heal := p.Stall()
			w.meanwhile(last)
			heal()
		})
	})
	return through
}

// summary is what a report says in a line of the table.
func summary(r history.Report) (faults int, bad, allowed map[history.Fact]int) {
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

// counts shows counts by fact.
func counts(by map[history.Fact]int) string {
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
