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
)

// lastFaults are faults whose consequences show after them. The first of them that a world has is
// the last fault of a run.
var lastFaults = []string{servers.Forward, servers.Back, "stop-all", "store-pause"}

// strike does a fault, which lasts for about duration; short faults ignore it.
func (w *world) strike(f servers.Fault, duration time.Duration) {
	p, wait := w.workers[w.r.IntN(len(w.workers))], func() { w.waitDuringFault(duration) }
	if f.Name == "pause" || f.Name == "kill" {
		wait = func() { time.Sleep(2 * duration) } // possibly for longer than a lease
	}
	p.away = duration / 2
	k := servers.Strike{
		Rand: w.r, For: duration, Step: faultStep, Wait: wait, Proceed: func() {},
		At: func(_ servers.Moment, fail func()) bool { fail(); return true },
	}
	if k.All = w.ways; len(k.All) > 0 {
		i := w.r.IntN(len(k.All))
		k.Ways = k.All[i : i+1]
	}
	w.director.Do(f, p, k)
}

// Worker implements [servers.Client].
func (p *workerProcess) Worker() string { return p.name }

// Stop implements [servers.Client].
func (p *workerProcess) Stop() { p.Signal(syscall.SIGSTOP) }

// Resume implements [servers.Client].
func (p *workerProcess) Resume() { p.Signal(syscall.SIGCONT) }

// Restart implements [servers.Client].
func (p *workerProcess) Restart() {
	p.Kill()
	time.Sleep(p.away) // the time without the worker
	p.world.startWorker(p)
	p.Expect("ready")
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
		e := &history.Event{Fault: "break", Name: s.Name}
		end := w.director.Begin(e)
		if err := w.admin.Break(ctx, s.Name, h.ID); err == nil { // else the hold has ended
			e.Token = h.Token
		}
		end()
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

// waitDuringFault waits while a fault is active. Sometimes it stops a worker in that time, unless
// clocks are set.
func (w *world) waitDuringFault(duration time.Duration) {
	if !w.Abandon || w.r.IntN(3) > 0 {
		time.Sleep(duration) // the fault lasts for this time
		return
	}
	time.Sleep(duration / 4) // the fault begins first
	resume := w.director.Stop(w.workers[w.r.IntN(len(w.workers))])
	time.Sleep(duration / 2) // the worker is stopped for this time
	resume()
	time.Sleep(duration / 4) // the fault ends last
}
