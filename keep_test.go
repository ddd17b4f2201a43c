package snib_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

func TestKeeper(t *testing.T) {
	tests := []struct {
		name  string
		renew func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal
		opts  []snib.Option
		hold  time.Duration
		want  error // cause of the hold's context after hold; nil while it lives
		why   error // what the cause matches in addition
	}{
		{name: "RenewsPastTTL", hold: time.Hour},
		{name: "LivesUntilDeadline", renew: unreachable, hold: ttl - ttl/100 - 3*time.Millisecond},
		{name: "LostAtDeadline", renew: unreachable, hold: ttl - ttl/100 - time.Millisecond, want: snib.ErrLost,
			why: errUnreachable},
		{name: "LostAtMaxHold", opts: []snib.Option{snib.MaxHold(time.Minute)}, hold: time.Minute, want: snib.ErrLost},
		{name: "LivesUntilMaxHold", opts: []snib.Option{snib.MaxHold(time.Minute)}, hold: time.Minute - 1},
		{name: "LostAtTTL", opts: []snib.Option{snib.NoRenewal()}, hold: ttl - ttl/100 - 2*time.Millisecond,
			want: snib.ErrLost},
		{name: "LivesUntilTTL", opts: []snib.Option{snib.NoRenewal()}, hold: ttl - ttl/100 - 2*time.Millisecond - 1},
		{name: "MaxHoldBeforeTTL", opts: []snib.Option{snib.NoRenewal(), snib.MaxHold(time.Second)}, hold: time.Second,
			want: snib.ErrLost},
		{name: "ShortTTL", opts: []snib.Option{snib.TTL(50 * time.Millisecond)}, hold: time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachKeeper(t, func(t *testing.T, d *spy, _ *memlock.Store) {
				d.renew = tt.renew
				lock := acquire(t, open(t, d, tt.opts...), "a")
				ctx := lock.Context()
				time.Sleep(tt.hold) // fake time
				synctest.Wait()
				got := context.Cause(ctx)
				if !errors.Is(got, tt.want) || (tt.want == nil) != (got == nil) || (tt.why != nil && !errors.Is(got, tt.why)) {
					t.Errorf("cause after %v = %v, want %v, %v", tt.hold, got, tt.want, tt.why)
				}
				if got := isClosed(lock.Lost()); got != (tt.want != nil) {
					t.Errorf("Lost after %v is closed: %v", tt.hold, got)
				}
				wantErr(t, "Release", lock.Release(), tt.want)
				if d.releases != 1 {
					t.Errorf("the store was told of %d releases, want 1", d.releases)
				}
			})
		})
	}
}

// With NoRenewal, the store gives the lock away at the end of the TTL, and the holder knows it
// before. Where the tenure is a session, the Locker goes on confirming the session, and releases
// the lock at the end of the TTL.
func TestNoRenewal(t *testing.T) {
	const delay = 5 * time.Second
	tests := []struct {
		name    string
		opts    []snib.Option
		session bool
		closed  time.Duration // from the grant to the next one
	}{
		{"Lease", nil, false, ttl},
		{"Session", nil, true, ttl},
		{"Fair", []snib.Option{snib.Fair()}, false, ttl},
		{"LeaseLockDelay", []snib.Option{snib.LockDelay(delay)}, false, ttl + delay},
		{"SessionLockDelay", []snib.Option{snib.LockDelay(delay)}, true, ttl + delay},
		{"LateMaxHold", []snib.Option{snib.MaxHold(time.Hour)}, true, ttl},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			store := new(memlock.Store)
			d := newSpy(store)
			if tt.session {
				endlessSession(d, ttl/3)
			}
			ours, theirs := open(t, d, append(tt.opts, snib.NoRenewal())...), open(t, store.Open())
			lock, began := acquire(t, ours, "a"), time.Now()
			<-lock.Context().Done()
			if got, want := time.Since(began), ttl-ttl/100-2*time.Millisecond; got != want {
				t.Errorf("the holder was told after %v, want %v", got, want)
			}
			if got := context.Cause(lock.Context()); !errors.Is(got, snib.ErrLost) ||
				!strings.Contains(got.Error(), "TTL of 30s") {
				t.Errorf("cause = %v, want ErrLost and the TTL", got)
			}
			next := acquire(t, theirs, "a")
			if got := time.Since(began); got != tt.closed {
				t.Errorf("the lock was closed for %v, want %v", got, tt.closed)
			}
			if renewals := len(d.batches); (renewals > 0) != tt.session {
				t.Errorf("the store got %d renewals; session: %v", renewals, tt.session)
			}
			wantErr(t, "Release of what was lost", lock.Release(), snib.ErrLost)
			release(t, next)
		})
	}
}

// endlessSession makes d a driver whose leases end with a session, which never ends. Each
// confirmation counts for ttl.
func endlessSession(d *spy, ttl time.Duration) {
	d.info = func(i driver.Info) driver.Info {
		i.Tenure, i.SessionTTL = driver.TenureSession, ttl
		return i
	}
	d.acquire = func(ctx context.Context, req driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
		req.TTL = 24 * time.Hour
		l, err := d.Driver.Acquire(ctx, req)
		return &sessionLease{l, ttl}, err
	}
	d.renew = func(_ context.Context, due []driver.Lease, _ func() []driver.Renewal) []driver.Renewal {
		return slices.Repeat([]driver.Renewal{{Start: driver.Now()}}, len(due))
	}
}

// With NoRenewal, the holder of a lease that was broken learns that at the end of the TTL, unless
// the driver tells it.
func TestNoRenewalOfBrokenLease(t *testing.T) {
	for _, tells := range []bool{true, false} {
		bubble(t, fmt.Sprintf("TellsLoss=%t", tells), func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			d.acquire = func(ctx context.Context, req driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
				if !tells {
					req.OnLost = func(error) {}
				}
				return d.Driver.Acquire(ctx, req)
			}
			l := open(t, d, snib.NoRenewal())
			lock, began := acquire(t, l, "a"), time.Now()
			if err := d.Driver.Break(t.Context(), "a", lock.ID()); err != nil {
				t.Fatalf("Break = %v", err)
			}
			<-lock.Context().Done()
			want := ttl - ttl/100 - 2*time.Millisecond
			if tells {
				want = 0
			}
			if got := time.Since(began); got != want {
				t.Errorf("the holder was told after %v, want %v", got, want)
			}
			wantErr(t, "Release", lock.Release(), snib.ErrLost)
		})
	}
}

// A renewal that hangs, in a driver that ignores its context, does not delay the loss. The hold
// is lost at its deadline, before the store gives the lock away.
func TestHungDriverDoesNotDelayLoss(t *testing.T) {
	eachKeeper(t, func(t *testing.T, d *spy, store *memlock.Store) {
		until := make(chan struct{})
		d.renew = hang(until)
		locker := open(t, d)
		began := time.Now()
		lock := acquire(t, locker, "a")
		longer := acquire(t, locker.With(snib.TTL(2*ttl)), "b") // all renewals hang before it ends
		next := make(chan time.Duration)
		go func() {
			other := open(t, store.Open())
			l, err := other.Acquire(t.Context(), "a")
			if err != nil {
				t.Errorf("Acquire by another process: %v", err)
			} else {
				defer l.Release()
			}
			next <- time.Since(began)
		}()
		<-lock.Context().Done()
		told := time.Since(began)
		if want := ttl - ttl/100 - 2*time.Millisecond; told != want {
			t.Errorf("the holder was told after %v, want %v", told, want)
		}
		if given := <-next; given <= told {
			t.Errorf("the store gave the lock away after %v, the holder was told after %v", given, told)
		}
		<-longer.Context().Done()
		close(until)
	})
}

// If part of the store hangs, the remaining leases are still renewed.
func TestHungBatchDoesNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		until := make(chan struct{})
		first := true
		d.renew = func(_ context.Context, _ []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			if d.mu.Lock(); first {
				first = false
				d.mu.Unlock()
				<-until
				return nil
			}
			d.mu.Unlock()
			return send()
		}
		locker := open(t, d)
		stuck := acquire(t, locker, "stuck")
		time.Sleep(5 * time.Second)
		fine := acquire(t, locker, "fine")
		time.Sleep(time.Minute)
		if !isClosed(stuck.Lost()) || isClosed(fine.Lost()) {
			t.Errorf("lost: stuck %v, want true; fine %v, want false", isClosed(stuck.Lost()), isClosed(fine.Lost()))
		}
		close(until)
		release(t, fine)
	})
}

// An answer that comes after the deadline does not revive the hold, whatever it says.
func TestRenewalNeverRevives(t *testing.T) {
	eachKeeper(t, func(t *testing.T, d *spy, _ *memlock.Store) {
		d.renew = func(_ context.Context, _ []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			answers := send() // the store extended the lease in time ...
			time.Sleep(ttl)   // ... and its answer took longer than the old lease
			return answers
		}
		lock := acquire(t, open(t, d), "a")
		time.Sleep(2 * ttl)
		synctest.Wait()
		wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrLost)
		wantErr(t, "Release", lock.Release(), snib.ErrLost)
	})
}

// A renewal counts from when it was sent, not from when the answer came.
func TestRenewalCountsFromSend(t *testing.T) {
	eachKeeper(t, func(t *testing.T, d *spy, _ *memlock.Store) {
		slow := true
		d.renew = func(_ context.Context, due []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			if !slow {
				return unreachable(t.Context(), due, nil)
			}
			slow = false
			answers := send()
			time.Sleep(8 * time.Second)
			return answers
		}
		lock := acquire(t, open(t, d), "a")
		began := time.Now()
		<-lock.Context().Done()
		// The renewal was sent after at most a third of the TTL.
		if got, most := time.Since(began), ttl/3+ttl; got > most {
			t.Errorf("lost after %v, want at most %v", got, most)
		}
	})
}

func TestRenewalRetriesWithinTheLease(t *testing.T) {
	eachKeeper(t, func(t *testing.T, d *spy, _ *memlock.Store) {
		calls := 0
		d.renew = func(_ context.Context, due []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			if calls++; calls%4 != 0 {
				return unreachable(t.Context(), due, nil)
			}
			return send()
		}
		lock := acquire(t, open(t, d), "a")
		time.Sleep(time.Hour)
		if isClosed(lock.Lost()) {
			t.Errorf("lost although each fourth renewal succeeded: %v", context.Cause(lock.Context()))
		}
		release(t, lock)
	})
}

// A driver that returns too few answers, or empty ones, has renewed nothing, but
// has not reported a loss either.
func TestMissingAnswersSayNothing(t *testing.T) {
	for _, answers := range []int{0, 1} {
		eachKeeper(t, func(t *testing.T, d *spy, _ *memlock.Store) {
			d.renew = func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal {
				return make([]driver.Renewal, answers)
			}
			lock := acquire(t, open(t, d), "a")
			time.Sleep(ttl / 2)
			if isClosed(lock.Lost()) {
				t.Errorf("%d empty answers: lost although the lease goes on", answers)
			}
			time.Sleep(ttl / 2)
			wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrLost)
		})
	}
}

// The hold ends at once if an answer of the store says that the lease is lost.
func TestStoreSaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.renew = func(_ context.Context, due []driver.Lease, _ func() []driver.Renewal) []driver.Renewal {
			answers := make([]driver.Renewal, len(due))
			for i := range answers {
				answers[i].Err = driver.ErrLost
			}
			return answers
		}
		lock := acquire(t, open(t, d), "a")
		time.Sleep(ttl / 2)
		wantErr(t, "cause after the next renewal", context.Cause(lock.Context()), snib.ErrLost)
		wantErr(t, "Release", lock.Release(), snib.ErrLost)
	})
}

func TestSessionLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("session expired")
		onLost := make(map[string]func(error))
		d := newSpy(new(memlock.Store))
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			onLost[req.Name] = req.OnLost
			if req.Name == "lost before" {
				req.OnLost(driver.ErrLost)
			}
			return send()
		}
		d.renew = func(_ context.Context, due []driver.Lease, _ func() []driver.Renewal) []driver.Renewal {
			answers := make([]driver.Renewal, len(due))
			for i := range answers {
				answers[i].Start = driver.Now()
			}
			return answers
		}
		locker := open(t, d)
		released := acquire(t, locker, "released")
		release(t, released)
		onLost["released"](driver.ErrLost) // too late to matter
		wantErr(t, "cause of a hold that was released", context.Cause(released.Context()), snib.ErrReleased)
		lock := acquire(t, locker, "a")
		onLost["a"](fmt.Errorf("%w: %w", driver.ErrLost, errGone))
		if !isClosed(lock.Lost()) {
			t.Error("Lost is not closed when the driver has told of the loss")
		}
		wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrLost)
		wantErr(t, "cause", context.Cause(lock.Context()), errGone)
		_, err := locker.Acquire(t.Context(), "lost before")
		wantErr(t, "Acquire of a lease that was lost before its grant arrived", err, snib.ErrUnavailable)
	})
}

// Many holds are renewed in few calls.
func TestRenewalsAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		locker := open(t, d)
		const holds = 1000
		for i := range holds {
			acquire(t, locker, fmt.Sprint(i))
		}
		time.Sleep(ttl - time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := len(d.batches); n > 40 {
			t.Errorf("%d holds took %d calls of Renew in a TTL, want at most 40", holds, n)
		}
	})
}

// A driver that renews all leases together is called as often for many holds as for one, whenever
// they were granted. A hold that the store has ended is lost, and no other.
func TestRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		d.together = true
		l := open(t, d)
		const holds = 300
		var locks []*snib.Lock
		for i := range holds {
			locks = append(locks, acquire(t, l.With(snib.TTL(ttl*time.Duration(1+i%2))), fmt.Sprint(i)))
			time.Sleep(ttl / 600)
		}
		broken := locks[7]
		if err := store.Open().Break(t.Context(), broken.Name(), broken.ID()); err != nil {
			t.Fatal(err)
		}
		const rounds = 30
		before := len(d.renewals())
		time.Sleep(rounds * ttl / 3)
		for i, n := range d.renewals() {
			if n > 0 {
				t.Fatalf("call %d of Renew was for %d leases, want all", i, n)
			}
		}
		if got := len(d.renewals()) - before; got < rounds || got > rounds*6/5 {
			t.Errorf("%d holds took %d calls of Renew, want %d or a few more", holds, got, rounds)
		}
		for i, lock := range locks {
			if lost := isClosed(lock.Lost()); lost != (lock == broken) {
				t.Fatalf("hold %d is lost: %v", i, lost)
			}
			if got := lock.Validity(); lock != broken && got < ttl/2 {
				t.Fatalf("Validity of hold %d = %v, want more than half of the TTL", i, got)
			}
		}
		for _, lock := range locks {
			if lock != broken {
				release(t, lock)
			}
		}
		calls := len(d.renewals())
		time.Sleep(ttl)
		if got := len(d.renewals()) - calls; got > 0 {
			t.Errorf("%d calls of Renew without a hold", got)
		}
	})
}

// The Traces are told of each hold, with its own margin, when all leases are renewed together.
func TestRenewedTogetherIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.together = true
		told := make(chan snib.RenewedEvent, 100)
		l := open(t, d)
		silent := acquire(t, l, "silent")
		traced := l.With(snib.Tracing(&snib.Trace{Renewed: func(e snib.RenewedEvent) { told <- e }}))
		first := acquire(t, traced, "first")
		time.Sleep(time.Second)
		second := acquire(t, traced, "second")
		time.Sleep(ttl / 3)
		synctest.Wait()
		if len(told) != 2 {
			t.Fatalf("told of %d renewals, want one of each hold with a Trace", len(told))
		}
		margins := map[string]time.Duration{}
		const valid = ttl - ttl/100 - 2*time.Millisecond
		for range 2 {
			e := <-told
			if margins[e.Name] = e.Margin; e.Err != nil || e.TTL != ttl || e.Left != valid {
				t.Errorf("told %+v, want a TTL of %v, and %v left", e, ttl, valid)
			}
		}
		if got := margins["second"] - margins["first"]; got != time.Second {
			t.Errorf("the margin of the second hold was longer by %v, want 1s", got)
		}
		for _, lock := range []*snib.Lock{silent, first, second} {
			release(t, lock)
		}
	})
}

// If a renewal of all leases hangs, in a driver that ignores its context, there is another one.
func TestHungRenewalOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.together = true
		until := make(chan struct{})
		var calls atomic.Int64
		d.renew = func(_ context.Context, _ []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			if calls.Add(1) == 1 {
				<-until
				return nil
			}
			return send()
		}
		lock := acquire(t, open(t, d), "a")
		time.Sleep(time.Hour)
		if isClosed(lock.Lost()) {
			t.Errorf("lost although only the first renewal hung: %v", context.Cause(lock.Context()))
		}
		close(until)
		synctest.Wait()
		release(t, lock)
	})
}

// Each hold ends at its own deadline, although all are renewed together: one that was granted after
// the last renewal lasts longer.
func TestDeadlinesOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.together = true
		fail := false
		d.renew = func(ctx context.Context, due []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			if fail {
				return unreachable(ctx, due, nil)
			}
			return send()
		}
		l := open(t, d)
		first := acquire(t, l, "first")
		time.Sleep(ttl) // it has been renewed
		left := first.Validity()
		fail = true
		second := acquire(t, l, "second")
		began := time.Now()
		for _, want := range []struct {
			lock *snib.Lock
			left time.Duration
		}{{first, left}, {second, ttl - ttl/100 - 2*time.Millisecond}} {
			<-want.lock.Context().Done()
			if got := time.Since(began); got != want.left {
				t.Errorf("%q was told of its end after %v, want %v", want.lock.Name(), got, want.left)
			}
			wantErr(t, "cause", context.Cause(want.lock.Context()), errUnreachable)
		}
	})
}

// A slow Trace neither delays a loss nor prevents renewals.
func TestSlowTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		trace := &snib.Trace{Renewed: func(snib.RenewedEvent) { time.Sleep(time.Second) }}
		l := open(t, store.Open(), snib.Tracing(trace))
		const holds = 300
		var locks []*snib.Lock
		for i := range holds {
			locks = append(locks, acquire(t, l, fmt.Sprint(i)))
		}
		broken := locks[holds-1]
		if err := store.Open().Break(t.Context(), broken.Name(), broken.ID()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-broken.Context().Done()
		if got := time.Since(began); got > ttl/3 {
			t.Errorf("told after %v, want %v at most", got, ttl/3)
		}
		time.Sleep(2 * time.Minute)
		for _, lock := range locks[:holds-1] {
			if isClosed(lock.Lost()) {
				t.Fatalf("lost though the store renewed it: %v", context.Cause(lock.Context()))
			}
		}
		wantErr(t, "Close", l.Close(), nil)
		time.Sleep(time.Hour) // let the Trace finish
	})
}
