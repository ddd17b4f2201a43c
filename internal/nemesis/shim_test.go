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

// A direction is where clocks are set to.
type direction string

const (
	forward direction = "clock-forward"
	back    direction = "clock-back"
)

// step adds the fault that a clock is set. The last fault of all is one, too: what a step leaves behind is seen then.
func (w *world) step(s *livetest.Shim, way direction) {
	w.last = string(way)
	w.alone = true // what a dead or lost holder leaves behind lasts as long as the step, by that clock
	w.add(string(way), func(time.Duration) {
		d := time.Minute // longer than all bounds
		if way == back {
			d = -d
		}
		w.during(string(way), "", func() {
			s.StepClock(d)
		})
	})
}

// mortal is a server that may end by itself.
type mortal interface {
	server
	MayEnd()
}

// fsync adds the fault that a server's disk fails. The server, which has to give up then, is started again with a disk that is well.
func (w *world) fsync(s *livetest.Shim, server mortal) {
	w.add("fsync", func(last time.Duration) {
		w.during("fsync", "", func() {
			server.MayEnd()
			s.FailFsync(true)
			w.meanwhile(last)
			s.FailFsync(false)
			server.Kill() // if it is still there
			server.Restart()
		})
	})
}
