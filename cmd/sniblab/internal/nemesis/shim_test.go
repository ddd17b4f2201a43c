//go:build linux

package nemesis

import (
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// newShim returns a test whose servers run with the shim.
func newShim(t testing.TB) (testing.TB, *livetest.Shim) {
	t.Helper()
	s := livetest.NewShim(t, "gcc")
	return livetest.WithEnv(t, s.Env()...), s
}

// A direction is the direction in which clocks are set.
type direction string

const (
	forward direction = "clock-forward"
	back    direction = "clock-back"
)

// addClockStep adds the fault that a clock is set. A clock step is also the last fault
// of a run, so that its consequences show.
func (w *world) addClockStep(s *livetest.Shim, way direction) {
	w.lastFault = string(way)
	// By a clock that was set back, the entry of a dead or lost holder lasts longer by the step.
	w.exclusive = true
	w.addFault(string(way), func(time.Duration) {
		d := time.Minute // longer than all bounds
		if way == back {
			d = -d
		}
		w.starting.Lock()
		defer w.starting.Unlock()
		w.logFault(string(way), "", func() { s.StepClock(d) })
	})
}

// A crashableServer is a server that may end by itself.
type crashableServer interface {
	server
	MayEnd()
	Up() bool
}

// keepRunning restarts a server that ends by itself, as the supervisor of a system does: a
// server may abort when its clock has gone back far enough. While it starts, the clock is not set:
// MariaDB's recovery would abort again.
func (w *world) keepRunning(s crashableServer) {
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

// addFsyncFault adds the fault that fsync fails on a server's disk. The server has to end then. The
// fault restarts it with a healthy disk.
func (w *world) addFsyncFault(s *livetest.Shim, server crashableServer) {
	w.addFault("fsync", func(duration time.Duration) {
		w.logFault("fsync", "", func() {
			server.MayEnd()
			s.FailFsync(true)
			w.waitDuringFault(duration)
			s.FailFsync(false)
			server.Kill() // if it still runs
			server.Restart()
		})
	})
}
