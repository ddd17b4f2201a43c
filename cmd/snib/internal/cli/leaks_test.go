package cli

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// A motion is a store in which a lock is in one state when all are listed, and in another when it is looked at again.
type motion struct {
	driver.Driver
	listed, later driver.Status
}

func (m motion) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	yield(m.listed)
	return nil
}
func (m motion) Status(context.Context, string) (driver.Status, error) { return m.later, nil }
func (m motion) Break(context.Context, string, string, uint64) error   { return driver.ErrLost }

// TestLeaksLookTwice: what was seen once, and is otherwise a second later, is no leak.
func TestLeaksLookTwice(t *testing.T) {
	held := func(owner string, token uint64) driver.Status {
		return driver.Status{Name: "lock", Holders: []driver.Holding{{Owner: owner, Token: token, Endless: true, Left: time.Hour}}}
	}
	queue := func(first string, waited time.Duration) driver.Status {
		return driver.Status{Name: "lock", Waiters: []driver.Waiting{{Owner: first, Waited: waited}}}
	}
	tests := []struct {
		name          string
		listed, later driver.Status
		want          int
	}{
		{"Stays", held("a", 1), held("a", 1), 1},
		{"Ended", held("a", 1), driver.Status{Name: "lock"}, 0},
		{"NextHold", held("a", 1), held("a", 2), 0},
		{"NextOwner", held("a", 1), held("b", 1), 0},
		{"Jammed", queue("a", time.Minute), queue("a", time.Minute), 1},
		{"LetIn", queue("a", time.Minute), held("a", 1), 0},
		{"Moves", queue("a", time.Minute), queue("b", time.Minute), 0},
		{"JustCame", queue("a", time.Second), queue("a", 2*time.Second), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := &leaking{app: &app{out: io.Discard, err: io.Discard, quiet: true}, held: &duration{}, limit: 10}
			found, err := l.find(t.Context(), &backend.Store{Driver: motion{listed: tt.listed, later: tt.later}}, "")
			if err != nil || len(found) != tt.want {
				t.Errorf("find = %+v, %v, want %d leaks", found, err, tt.want)
			}
		})
	}
}

// An answerer is a store whose answers are on their way for a while.
type answerer struct {
	motion
	ends  time.Time
	delay time.Duration
}

func (a answerer) hold() driver.Status {
	dead := driver.Holder{Host: "here", PID: 1 << 30} // there is no such process
	return driver.Status{Name: "lock", Holders: []driver.Holding{{Owner: "a", Token: 1, Holder: dead, Left: time.Until(a.ends)}}}
}

func (a answerer) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	yield(a.hold())
	return nil
}

func (a answerer) Status(context.Context, string) (driver.Status, error) {
	st := a.hold()
	time.Sleep(a.delay)
	return st, nil
}

// TestLeaksWithSlowAnswers: that an answer takes long is not taken for a renewal.
func TestLeaksWithSlowAnswers(t *testing.T) {
	for _, delay := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l := &leaking{app: &app{out: io.Discard, err: io.Discard, quiet: true}, held: &duration{}, limit: 10, host: "here"}
			found, err := l.find(t.Context(), &backend.Store{Driver: answerer{ends: time.Now().Add(time.Hour), delay: delay}}, "")
			if err != nil || len(found) != 1 || found[0].kind != leakDead {
				t.Errorf("with answers that take %v, find = %+v, %v, want a dead hold", delay, found, err)
			}
		})
	}
}
