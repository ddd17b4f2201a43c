package jobtest

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Stoppable server can hang and die. A *livetest.Process is one.
type Stoppable interface {
	Hang()
	Resume()
	Kill()
	Restart()
}

// Ping checks what snib.Locker.Ping says of servers that run, hang, run again, are dead, and run
// again. Without these servers, the store can't answer. The caller closes d.
func Ping(t *testing.T, d driver.Driver, servers ...Stoppable) {
	l, err := snib.New(d)
	if err != nil {
		t.Fatal(err)
	}
	each := func(do func(Stoppable)) {
		for _, s := range servers {
			do(s)
		}
	}
	reachable := func() {
		t.Helper()
		livetest.Await(t, "Ping without an error", func() error { return l.Ping(t.Context()) })
	}
	unavailable := func(state string) {
		t.Helper()
		began := time.Now()
		err := l.Ping(t.Context())
		if !errors.Is(err, snib.ErrUnavailable) || errors.Is(err, snib.ErrHeld) {
			t.Errorf("Ping of a server that %s = %v, want ErrUnavailable", state, err)
		}
		// A busy machine may be late.
		if took := time.Since(began); took > 6*driver.AnswerTimeout {
			t.Errorf("Ping of a server that %s took %v", state, took)
		}
	}
	reachable()
	each(Stoppable.Hang)
	unavailable("hangs")
	each(Stoppable.Resume)
	reachable()
	each(Stoppable.Kill)
	unavailable("is dead")
	each(Stoppable.Restart)
	reachable()
}
