package snib_test

import (
	"context"
	"errors"
	"fmt"
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
		{name: "LostAtDeadline", renew: unreachable, hold: ttl - ttl/100 - time.Millisecond, want: snib.ErrLost, why: errUnreachable},
		{name: "LostAtMaxHold", opts: []snib.Option{snib.MaxHold(time.Minute)}, hold: time.Minute, want: snib.ErrLost},
		{name: "LivesUntilMaxHold", opts: []snib.Option{snib.MaxHold(time.Minute)}, hold: time.Minute - 1},
		{name: "ShortTTL", opts: []snib.Option{snib.TTL(50 * time.Millisecond)}, hold: time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSpy(new(memlock.Store))
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

// A renewal that hangs, in a driver that ignores its context, does not delay the loss. The hold
// is lost at its deadline, before the store gives the lock away.
func TestHungDriverDoesNotDelayLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		until := make(chan struct{})
		d.renew = hang(until)
		locker := open(t, d)
		began := time.Now()
		lock := acquire(t, locker, "a")
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
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
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
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
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
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
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
		synctest.Test(t, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
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
		wantErr(t, "Acquire of a lease that was lost before its grant arrived", err, snib.ErrLost)
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

// The loss of any lease of an owner ends the hold that its acquisitions share.
func TestOwnerLoss(t *testing.T) {
	for _, which := range []string{"first", "second"} {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSpy(new(memlock.Store))
				l := open(t, d, snib.Owner("x"))
				onLost := make(map[string]func(error))
				var calls atomic.Int64
				d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
					if calls.Add(1) == 1 {
						onLost["second"] = req.OnLost
						time.Sleep(time.Second) // the first request is answered last
					} else {
						onLost["first"] = req.OnLost
					}
					return send()
				}
				got := make(chan *snib.Lock)
				go func() { got <- acquire(t, l, "a") }()
				synctest.Wait()
				locks := []*snib.Lock{acquire(t, l, "a"), <-got}
				onLost[which](driver.ErrLost)
				for i, lock := range locks {
					if !isClosed(lock.Lost()) {
						t.Errorf("lock %d is not lost", i)
					}
				}
			})
		})
	}
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
		if err := store.Open().Break(t.Context(), broken.Name(), broken.Owner(), broken.Token()); err != nil {
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
