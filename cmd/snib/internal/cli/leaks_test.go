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
			l := &leaking{app: &app{out: io.Discard, err: io.Discard, quiet: true}, held: &duration{}, settle: &duration{}, limit: 10}
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
			l := &leaking{app: &app{out: io.Discard, err: io.Discard, quiet: true}, held: &duration{}, settle: &duration{value: maxSettled}, limit: 10, host: "here"}
			found, err := l.find(t.Context(), &backend.Store{Driver: answerer{ends: time.Now().Add(time.Hour), delay: delay}}, "")
			if err != nil || len(found) != 1 || found[0].kind != leakDead {
				t.Errorf("with answers that take %v, find = %+v, %v, want a dead hold", delay, found, err)
			}
		})
	}
}

// A renewing store has a hold whose process is not to be seen, and which is renewed whenever a third of its TTL is over, until it dies.
type renewing struct {
	motion
	ttl         time.Duration
	taken, died time.Time
}

func (r renewing) hold() driver.Status {
	life := time.Since(r.taken)
	if !r.died.IsZero() {
		life = r.died.Sub(r.taken)
	}
	last := r.taken.Add(life.Truncate(r.ttl / 3))
	return driver.Status{Name: "lock", Holders: []driver.Holding{{
		Owner: "a", Token: 1, Holder: driver.Holder{Host: "here", PID: 1 << 30}, Left: time.Until(last.Add(r.ttl)),
	}}}
}

func (r renewing) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	yield(r.hold())
	return nil
}

func (r renewing) Status(context.Context, string) (driver.Status, error) { return r.hold(), nil }

// TestLeaksWatchesForRenewals: who lives where we can't see it is not taken for dead, whenever we look between its renewals; and if the time
// is not enough to tell, nothing is freed.
func TestLeaksWatchesForRenewals(t *testing.T) {
	const ttl, long = 30 * time.Second, time.Hour
	tests := []struct {
		name    string
		ttl     time.Duration
		life    time.Duration // at our first look
		dead    bool          // since then
		found   bool
		repairs bool
		takes   time.Duration // at most
	}{
		{"LivesJustTaken", ttl, 0, false, false, false, 11 * time.Second},
		{"LivesJustRenewed", ttl, ttl/3 + time.Millisecond, false, false, false, 11 * time.Second},
		{"LivesInBetween", ttl, ttl / 2, false, false, false, 11 * time.Second},
		{"LivesAboutToRenew", ttl, 2*ttl/3 - time.Millisecond, false, false, false, 11 * time.Second},
		{"DeadJustRenewed", ttl, ttl / 3, true, true, true, 11 * time.Second},
		{"DeadSinceAWhile", ttl, ttl/3 - time.Second, true, true, true, 11 * time.Second},
		{"LongLives", long, time.Minute, false, true, false, maxSettled},
		{"LongDead", long, time.Minute, true, true, false, maxSettled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := renewing{ttl: tt.ttl, taken: time.Now().Add(-tt.life)}
				if tt.dead {
					store.died = time.Now()
				}
				l := &leaking{
					app: &app{out: io.Discard, err: io.Discard, quiet: true}, held: &duration{}, settle: &duration{value: maxSettled}, limit: 10, host: "here",
				}
				began := time.Now()
				found, err := l.find(t.Context(), &backend.Store{Driver: store}, "")
				if err != nil || len(found) > 0 != tt.found {
					t.Fatalf("find = %+v, %v, want a dead hold: %v", found, err, tt.found)
				}
				if took := time.Since(began); took > tt.takes {
					t.Errorf("find took %v, want %v at most", took, tt.takes)
				}
				if tt.found && l.repairs(found[0]) != tt.repairs {
					t.Errorf("--fix frees %q: %v, want %v", found[0].problem, !tt.repairs, tt.repairs)
				}
			})
		})
	}
}

// TestLeaksEnds: a watch ends with the context.
func TestLeaksEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		l := &leaking{
			app: &app{out: io.Discard, err: io.Discard, quiet: true}, held: &duration{}, settle: &duration{value: maxSettled}, limit: 10, host: "here",
		}
		began := time.Now()
		_, err := l.find(ctx, &backend.Store{Driver: renewing{ttl: time.Hour, taken: began}}, "")
		if took := time.Since(began); err == nil || took > 2*time.Second {
			t.Errorf("find = %v after %v, want the end of its context after 2s", err, took)
		}
	})
}
