//go:build linux

package nemesis

import (
	"context"
	"slices"
	"syscall"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// A fault is something that can be done to a world. The fault has ended when run returns.
type fault struct {
	name string
	run  func(duration time.Duration) // duration is a wish; short faults ignore it
}

// lastFaults are faults whose consequences show after them. The first of them that a world has is
// the last fault of a run.
var lastFaults = []string{servers.Forward, servers.Back, "stop-all", "store-pause"}

// addFault adds a fault of the store or of the network, which lasts until do returns.
func (w *world) addFault(name string, do func(duration time.Duration)) {
	w.faults = append(w.faults, fault{name, func(d time.Duration) { w.logFault(name, "", func() { do(d) }) }})
}

// addWorkerFaults adds the faults that a worker is killed or stopped, or that an operator breaks a
// lock.
func (w *world) addWorkerFaults() {
	w.faults = append(w.faults, fault{history.KillWorker, func(duration time.Duration) {
		p := w.workers[w.r.IntN(len(w.workers))]
		w.logFault(history.KillWorker, p.name, p.Kill)
		time.Sleep(duration / 2) // the time without the worker
		w.startWorker(p)
		p.Expect("ready")
	}}, fault{history.StopWorker, func(duration time.Duration) {
		w.stopWorker(2 * duration) // possibly for longer than a lease
	}}, fault{"break", func(time.Duration) { w.breakLock() }})
}

// stopWorker stops a worker for a time.
func (w *world) stopWorker(duration time.Duration) {
	p := w.workers[w.r.IntN(len(w.workers))]
	w.logFault(history.StopWorker, p.name, func() {
		p.Signal(syscall.SIGSTOP)
		time.Sleep(duration) // the worker is stopped for this time
		p.Signal(syscall.SIGCONT)
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
			isNew := func(s driver.Status) bool { return s.Holders[0].Left > longTTL-hintBound/10 }
			if i := slices.IndexFunc(held, isNew); i >= 0 {
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

// faultStep is by how much clocks are set: longer than all bounds.
const faultStep = time.Minute

// addSetFaults adds the faults of servers that the set-up has. A worker may be stopped at the same
// time.
func (w *world) addSetFaults(s *servers.Set) {
	for _, f := range servers.Faults() {
		if !slices.Contains(w.names, f.Name) {
			continue
		}
		w.faults = append(w.faults, fault{f.Name, func(duration time.Duration) {
			if f.Name == servers.Forward || f.Name == servers.Back {
				w.starting.Lock()
				defer w.starting.Unlock()
			}
			s.Do(f.Name, servers.Strike{
				Rand: w.r, Step: faultStep, Wait: func() { w.waitDuringFault(duration) },
				Hold: func(fail func()) { w.logFault(f.Name, "", fail) },
			})
		}})
	}
}

// waitDuringFault waits while a fault is active. Sometimes it stops a worker in that time.
func (w *world) waitDuringFault(duration time.Duration) {
	if w.exclusive || w.r.IntN(3) > 0 {
		time.Sleep(duration) // the fault lasts for this time
		return
	}
	time.Sleep(duration / 4) // the fault begins first
	w.stopWorker(duration / 2)
	time.Sleep(duration / 4) // the fault ends last
}

// addProxies sets the store. It puts a proxy before each address, through which the workers reach
// the store, and adds the network faults.
func (w *world) addProxies(kind string, addrs ...string) {
	w.t.Helper()
	w.direct, w.Store = newStore(kind, addrs...), newStore(kind)
	for _, addr := range addrs {
		p := livetest.NewProxy(w.t, addr)
		w.proxies, w.Store.Addrs = append(w.proxies, p), append(w.Store.Addrs, p.Addr())
	}
	one := func() *livetest.Proxy { return w.proxies[w.r.IntN(len(w.proxies))] }
	w.addFault("reset", func(time.Duration) {
		for _, p := range w.proxies {
			p.Cut()
		}
	})
	during := func(name string, begin func(*livetest.Proxy) (heal func())) {
		w.addFault(name, func(duration time.Duration) {
			heal := begin(one())
			w.waitDuringFault(duration)
			heal()
		})
	}
	during("cut", (*livetest.Proxy).Sever)
	during("late-cut", (*livetest.Proxy).Stall)
	during("delay", func(p *livetest.Proxy) func() {
		p.Delay(50*time.Millisecond, 50*time.Millisecond)
		return p.Heal
	})
	during("lose-answer", func(p *livetest.Proxy) func() {
		p.LoseAnswers(2, livetest.ThenClose, w.request...)
		return p.Heal
	})
}

// keepRunning restarts a server that ends by itself, as the supervisor of a system does: a
// server may abort when its clock has gone back far enough. While it starts, the clock is not set:
// MariaDB's recovery would abort again.
func (w *world) keepRunning(s servers.Server) {
	s.MayEnd()
	done, ended := make(chan struct{}), make(chan struct{})
	w.t.Cleanup(func() {
		close(done)
		<-ended
	})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if !s.Up() {
				w.t.Log("the server has ended by itself, and is restarted")
				func() {
					w.starting.Lock()
					defer w.starting.Unlock() // also if Restart ends this goroutine
					s.Restart()
					s.MayEnd()
				}()
			}
		}
	}()
}
