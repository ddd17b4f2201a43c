//go:build linux

package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
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
	t      testing.TB
	dir    string // of the logs
	r      *rand.Rand
	log    *history.Log
	faults []servers.Fault
	brisk  bool
	slack  func() time.Duration // by which the machine makes everything later

	set      *servers.Set
	director *servers.Director
	ways     []*livetest.Proxy // of the workers, to each server

	Job                   // of the workers; Name, Log and Seed are filled in
	direct  store.Store   // past all proxies, for operators and for the final check
	admin   driver.Driver // uses direct
	workers []*workerProcess
}

// A workerProcess is a worker. Its processes run one after the other, each with its
// own name and log.
type workerProcess struct {
	*livetest.Child
	number, incarnation int
	name                string
	world               *world
	away                time.Duration // how long it stays dead when it is killed
}

// newWorld starts the servers of a set-up. The world has the faults of the set-up.
func (s setup) newWorld(t testing.TB, dir string, seed uint64) *world {
	t.Helper()
	log, err := history.Create(filepath.Join(dir, "faults"), "")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: quietTB{t}, dir: dir, r: rand.New(rand.NewPCG(seed, 1)), log: log, brisk: s.brisk}
	w.faults, w.slack = servers.Faults(), livetest.Slack(t)
	// By a clock that was set back, the entry of a dead or lost holder lasts longer by the step.
	w.Abandon = !s.has(servers.Forward) && !s.has(servers.Back)
	s.start(w)
	w.director = &servers.Director{Set: w.set, TTL: ttl, Record: w.logEvent}
	if w.set.Own == nil {
		w.set.Own = map[string]func(servers.Strike){}
	}
	w.set.Own["break"] = func(servers.Strike) { w.breakLock() }
	w.keepFaults(strings.Fields(s.faults))
	return w
}

// use makes servers those of the world, whose workers reach them through proxies where possible.
func (w *world) use(kind string, s *servers.Set) {
	w.set, w.ways = s, s.NewWays()
	w.direct, w.Store = newStore(kind, slices.Clone(s.Addrs)...), newStore(kind, slices.Clone(s.Addrs)...)
	for i, way := range w.ways {
		w.Store.Addrs[i] = way.Addr()
	}
}

// keepFaults removes all faults except those with these names.
func (w *world) keepFaults(names []string) {
	w.faults = slices.DeleteFunc(w.faults, func(f servers.Fault) bool { return !slices.Contains(names, f.Name) })
	if len(w.faults) == 0 {
		w.t.Fatalf("the set-up has none of the faults %q", names)
	}
}

// logEvent logs an event at the current time.
func (w *world) logEvent(e history.Event) {
	e.At = now()
	w.log.Add(e)
}

// startWorker starts a worker for the first time, or again.
func (w *world) startWorker(p *workerProcess) {
	w.t.Helper()
	p.incarnation++
	p.name = fmt.Sprintf("w%d.%d", p.number, p.incarnation)
	j := w.Job
	j.Name, j.Log, j.Seed, j.Calm = p.name, filepath.Join(w.dir, p.name), w.r.Uint64(), w.calmFile()
	j.Quiet = p.number == 0
	if j.Store.Kind == "served" && p.number%2 > 0 { // it prefers the second replica
		j.Store.Addrs = slices.Clone(j.Store.Addrs)
		slices.Reverse(j.Store.Addrs)
	}
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
		p := &workerProcess{number: n, world: w}
		w.workers = append(w.workers, p)
		w.startWorker(p)
	}
	for _, p := range w.workers {
		p.Expect("ready")
	}
	admin, err := w.direct.Open(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	w.admin = admin
	w.t.Cleanup(func() { _ = admin.Close() }) // its servers may be gone
	const startTimeout = time.Minute
	for began := time.Now(); history.Check(w.events(), history.Rules{}).Acquired == 0; {
		if time.Since(began) > startTimeout+w.slack() {
			w.t.Fatalf("nobody has got a lock within %v", startTimeout)
		}
		time.Sleep(100 * time.Millisecond) // the logs grow slowly
	}
}

// run starts workers, injects faults for the given duration, heals them, and waits until all
// workers make progress, but at most for bound and the slack. Then it ends the workers, and checks
// that the store forgets them within leftoverBound and the slack.
func (w *world) run(workers int, duration, bound, leftoverBound time.Duration) {
	w.t.Helper()
	w.startWorkers(workers)
	w.injectFaults(duration)

	w.logEvent(history.Event{Kind: history.Heal})
	if err := os.WriteFile(w.calmFile(), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	for healed := time.Now(); time.Since(healed) < bound+w.slack()+time.Second && history.Waiting(w.events()); {
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
	next := servers.Schedule(w.r, w.faults)
	for began := time.Now(); time.Since(began) < duration; {
		f := next()
		if w.brisk {
			w.strike(f, time.Duration(w.r.Int64N(int64(500*time.Millisecond))))
			w.pause(500 * time.Millisecond)
			continue
		}
		w.strike(f, 300*time.Millisecond+time.Duration(w.r.Int64N(int64(ttl)*3/2)))
		if w.r.IntN(6) > 0 {
			w.pause(500 * time.Millisecond)
		} else {
			w.pause(longTTL) // consequences of the fault have time to appear
		}
	}
	for _, name := range lastFaults {
		if i := slices.IndexFunc(w.faults, func(f servers.Fault) bool { return f.Name == name }); i >= 0 {
			w.strike(w.faults[i], ttl)
			break
		}
	}
}

// pause waits for a random time with the given mean.
func (w *world) pause(mean time.Duration) {
	time.Sleep(mean/2 + time.Duration(w.r.Int64N(int64(mean)))) // the time between two faults
}

// logLeftovers waits until the store shows no holders and no waiters any more, also none of
// killed workers, but at most for bound and the slack. Then it logs those that are left.
func (w *world) logLeftovers(bound time.Duration) {
	w.t.Helper()
	var left map[string]string
	for began := time.Now(); ; {
		var err error
		if left, err = w.statusByName(); err == nil && len(left) == 0 {
			return
		}
		if time.Since(began) > bound+w.slack() {
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
