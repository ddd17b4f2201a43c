package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A changingStore has one lock, whose state is another one after it was read. It lists no ids, as a
// lock service does.
type changingStore struct {
	driver.Driver
	now, later driver.Status
}

func (m *changingStore) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	st := m.now
	st.Holders, st.Waiters = slices.Clone(st.Holders), slices.Clone(st.Waiters)
	for i := range st.Holders {
		st.Holders[i].ID = ""
	}
	for i := range st.Waiters {
		st.Waiters[i].ID = ""
	}
	yield(st)
	return nil
}

func (m *changingStore) Status(context.Context, string) (st driver.Status, err error) {
	st, m.now = m.now, m.later
	return st, nil
}
func (changingStore) Break(context.Context, string, string) error { return driver.ErrLost }
func (changingStore) Withdraw(context.Context, string, string) error {
	return errors.ErrUnsupported
}

// TestLeaksLookTwice checks that what one look shows, and the next one a second
// later does not, is no leak.
func TestLeaksLookTwice(t *testing.T) {
	held := func(id string, token uint64) driver.Status {
		return driver.Status{Name: "lock", Holders: []driver.Holding{{ID: id, Token: token, Left: driver.NoExpiry}}}
	}
	queue := func(first string, waited time.Duration) driver.Status {
		return driver.Status{Name: "lock", Waiters: []driver.Waiting{{ID: first, Waited: waited}}}
	}
	foreign := driver.Status{Name: "lock", Holders: []driver.Holding{{ID: "a", Foreign: "redis-py", Left: driver.NoExpiry}}}
	dead := func(kind driver.HolderKind, left time.Duration) driver.Status {
		gone := driver.Holder{Host: "here", PID: 1 << 30, Kind: kind} // no such process exists
		return driver.Status{Name: "lock", Holders: []driver.Holding{{ID: "a", Token: 1, Holder: gone, Left: left}}}
	}
	tests := []struct {
		name       string
		now, later driver.Status
		want       int
	}{
		{"Dead", dead(driver.KindProcess, time.Hour), dead(driver.KindProcess, time.Minute), 1},
		{"Detached", dead(driver.KindDetached, time.Hour), dead(driver.KindDetached, time.Minute), 0},
		{"Pending", dead(driver.KindPending, time.Hour), dead(driver.KindPending, time.Minute), 0},
		{"Kept", dead(driver.KindKept, time.Hour), dead(driver.KindKept, time.Minute), 0},
		{"Stays", held("a", 1), held("a", 1), 1},
		{"Ended", held("a", 1), driver.Status{Name: "lock"}, 0},
		{"NextHold", held("a", 1), held("a", 2), 0},
		{"NextForeignOwner", held("a", 0), held("b", 0), 0},
		{"Foreign", foreign, foreign, 1},
		{"Jammed", queue("a", time.Minute), queue("a", time.Minute), 1},
		{"LetIn", queue("a", time.Minute), held("a", 1), 0},
		{"Moves", queue("a", time.Minute), queue("b", time.Minute), 0},
		{"JustCame", queue("a", time.Second), queue("a", 2*time.Second), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := &leaksCommand{app: &app{out: io.Discard, err: io.Discard, quiet: true}, settle: &duration{}, host: "here"}
			found, err := l.find(t.Context(), &backend.Store{Driver: &changingStore{now: tt.now, later: tt.later}}, "")
			if err != nil || len(found) != tt.want {
				t.Errorf("find = %+v, %v, want %d leaks", found, err, tt.want)
			}
		})
	}
}

// TestForeignLooksTwice checks that a key of another library is a leak only if the second look
// finds it without an end. A hash, or a long string, has no hold that could be broken.
func TestForeignLooksTwice(t *testing.T) {
	hash, value := leak{kind: leakForeign}, leak{kind: leakForeign, hold: &driver.Holding{ID: "a", Left: driver.NoExpiry}}
	tests := []struct {
		name string
		leak leak
		now  []driver.Holding
		want bool
	}{
		{"HashStays", hash, []driver.Holding{{ID: "a", Left: driver.NoExpiry}, {ID: "b", Left: driver.NoExpiry}}, true},
		{"HashGone", hash, nil, false},
		{"HashExpires", hash, []driver.Holding{{ID: "a", Left: time.Hour}}, false},
		{"ValueStays", value, []driver.Holding{{ID: "a", Left: driver.NoExpiry}}, true},
		{"ValueGone", value, nil, false},
		{"ValueExpires", value, []driver.Holding{{ID: "a", Left: time.Hour}}, false},
		{"OtherValue", value, []driver.Holding{{ID: "b", Left: driver.NoExpiry}}, false},
	}
	for _, tt := range tests {
		if _, got := confirmForeign(tt.leak, driver.Status{Holders: tt.now}); got != tt.want {
			t.Errorf("%s: confirmForeign = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestFixGoesOn checks that --fix goes on after a queue without a dead waiter, one that the store
// does not repair, and a hold that has changed.
func TestFixGoesOn(t *testing.T) {
	gone := driver.Status{Waiters: []driver.Waiting{{ID: "a", Holder: driver.Holder{Host: "here", PID: 1 << 30}}}}
	alive := driver.Status{Waiters: []driver.Waiting{{ID: "a", Holder: driver.Holder{Host: "here", PID: os.Getpid()}}}}
	found := []leak{
		{kind: leakStuck, status: alive}, {kind: leakStuck, status: gone}, {kind: leakEndless, hold: &driver.Holding{}},
	}
	l := &leaksCommand{app: &app{err: io.Discard}, yes: true, host: "here"}
	err := l.repair(t.Context(), &backend.Store{Driver: &changingStore{}}, found)
	if err != nil || l.isRepairable(found[0]) ||
		slices.ContainsFunc(found, func(k leak) bool { return k.fixed || !strings.Contains(k.problem, "left alone") }) {
		t.Errorf("repair = %v, want that all leaks are left alone: %+v", err, found)
	}
}

// A slowStore is a store whose answers take a while to arrive.
type slowStore struct {
	changingStore
	ends  time.Time
	delay time.Duration
}

func (a slowStore) hold() driver.Status {
	dead := driver.Holder{Host: "here", PID: 1 << 30} // no such process exists
	return driver.Status{Name: "lock", Holders: []driver.Holding{{ID: "a", Token: 1, Holder: dead, Left: time.Until(a.ends)}}}
}

func (a slowStore) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	yield(a.hold())
	return nil
}

func (a slowStore) Status(context.Context, string) (driver.Status, error) {
	st := a.hold()
	time.Sleep(a.delay)
	return st, nil
}

// TestLeaksWithSlowAnswers checks that a slow answer is not mistaken for a renewal.
func TestLeaksWithSlowAnswers(t *testing.T) {
	for _, delay := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l := &leaksCommand{app: &app{out: io.Discard, err: io.Discard, quiet: true}, host: "here",
				settle: &duration{value: defaultSettle}}
			store := slowStore{ends: time.Now().Add(time.Hour), delay: delay}
			found, err := l.find(t.Context(), &backend.Store{Driver: store}, "")
			if err != nil || len(found) != 1 || found[0].kind != leakDead {
				t.Errorf("with answers that take %v, find = %+v, %v, want a dead hold", delay, found, err)
			}
		})
	}
}

// A renewingStore has a hold whose process can't be found. It is renewed after each third
// of its TTL, until it dies.
type renewingStore struct {
	changingStore
	ttl         time.Duration
	taken, died time.Time
}

func (r renewingStore) hold() driver.Status {
	life := time.Since(r.taken)
	if !r.died.IsZero() {
		life = r.died.Sub(r.taken)
	}
	last := r.taken.Add(life.Truncate(r.ttl / 3))
	return driver.Status{Name: "lock", Holders: []driver.Holding{{
		ID: "a", Token: 1, Holder: driver.Holder{Host: "here", PID: 1 << 30}, Left: time.Until(last.Add(r.ttl)),
	}}}
}

func (r renewingStore) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	yield(r.hold())
	return nil
}

func (r renewingStore) Status(context.Context, string) (driver.Status, error) { return r.hold(), nil }

// TestLeaksWatchesForRenewals checks that a holder that we can't see is not considered dead,
// whenever between its renewals we look. If there is not enough time to tell, nothing is freed.
func TestLeaksWatchesForRenewals(t *testing.T) {
	const ttl, long = 30 * time.Second, time.Hour
	tests := []struct {
		name    string
		ttl     time.Duration
		life    time.Duration // when we look first
		dead    bool          // from then on
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
		{"LongLives", long, time.Minute, false, true, false, defaultSettle},
		{"LongDead", long, time.Minute, true, true, false, defaultSettle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := renewingStore{ttl: tt.ttl, taken: time.Now().Add(-tt.life)}
				if tt.dead {
					store.died = time.Now()
				}
				l := &leaksCommand{
					app: &app{out: io.Discard, err: io.Discard, quiet: true}, settle: &duration{value: defaultSettle}, host: "here",
				}
				began := time.Now()
				found, err := l.find(t.Context(), &backend.Store{Driver: store}, "")
				if err != nil || len(found) > 0 != tt.found {
					t.Fatalf("find = %+v, %v, want a dead hold: %v", found, err, tt.found)
				}
				if took := time.Since(began); took > tt.takes {
					t.Errorf("find took %v, want %v at most", took, tt.takes)
				}
				if tt.found && l.isRepairable(found[0]) != tt.repairs {
					t.Errorf("--fix frees %q: %v, want %v", found[0].problem, !tt.repairs, tt.repairs)
				}
			})
		})
	}
}

// TestLeaksEnds checks that the watch ends with its context.
func TestLeaksEnds(t *testing.T) {
	slack := livetest.Slack(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		l := &leaksCommand{
			app: &app{out: io.Discard, err: io.Discard, quiet: true}, settle: &duration{value: defaultSettle}, host: "here",
		}
		began := time.Now()
		_, err := l.find(ctx, &backend.Store{Driver: renewingStore{ttl: time.Hour, taken: began}}, "")
		if took := time.Since(began); err == nil || took > 2*time.Second+slack() {
			t.Errorf("find = %v after %v, want the end of its context after 2s", err, took)
		}
	})
}
