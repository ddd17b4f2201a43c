package snib_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// keptWorld is a store with a Locker that keeps its leases, and one of another process.
type keptWorld struct {
	store       *memlock.Store
	spy         *spy
	here, there *snib.Locker
	severed     atomic.Bool // renewals of here are not answered
}

// keptFor is the Keep of the tests' Lockers. It is several TTLs.
const keptFor = 5 * time.Minute

func newKeptWorld(t *testing.T, opts ...snib.Option) *keptWorld {
	w := &keptWorld{store: new(memlock.Store)}
	w.spy = newSpy(w.store)
	w.spy.info = strongerOnDemand
	w.spy.renew = func(ctx context.Context, due []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
		if w.severed.Load() {
			return unreachable(ctx, due, send)
		}
		return send()
	}
	w.here = open(t, w.spy, append([]snib.Option{snib.Keep(keptFor)}, opts...)...)
	w.there = open(t, w.store.Open(), snib.Keep(keptFor))
	return w
}

// status returns what the store knows of the lock.
func (w *keptWorld) status(t *testing.T) driver.Status {
	t.Helper()
	st, err := w.store.Open().Status(t.Context(), "a")
	wantErr(t, "Status", err, nil)
	return st
}

// cycle acquires and releases the lock, and returns the token.
func cycle(t *testing.T, l *snib.Locker) uint64 {
	t.Helper()
	lock := acquire(t, l, "a")
	release(t, lock)
	return lock.Token()
}

// A kept lease serves the next acquisition without a request, with a token of its own.
func TestKeptIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acquired, released, keptReleases int
		w := newKeptWorld(t, snib.Tracing(&snib.Trace{
			Acquired: func(e snib.AcquiredEvent) {
				if e.Kept && e.Local {
					acquired++
				}
			},
			Released: func(e snib.ReleasedEvent) {
				released++
				if e.Kept && e.Local {
					keptReleases++
				}
			},
		}))
		last := cycle(t, w.here)
		const n = 10
		for range n {
			time.Sleep(time.Minute) // longer than the TTL
			token := cycle(t, w.here)
			if token <= last {
				t.Errorf("the token %d came after %d", token, last)
			}
			last = token
		}
		if w.spy.acquires != 1 || w.spy.releases != 0 {
			t.Errorf("%d acquisitions and %d releases were sent to the store, want 1 and 0", w.spy.acquires, w.spy.releases)
		}
		if acquired != n || released != n+1 || keptReleases != n+1 {
			t.Errorf("the trace has %d kept acquisitions, %d releases and %d kept ones, want %d, %d, %d", acquired, released, keptReleases, n, n+1, n+1)
		}
		if token := cycle(t, w.there); token <= last {
			t.Errorf("the token %d of another process came after %d", token, last)
		}
	})
}

// Another process that wants the lock gets it as soon as it asks.
func TestKeptIsGivenBack(t *testing.T) {
	tests := []struct {
		name    string
		acquire func(*snib.Locker, context.Context, string) (*snib.Lock, error)
	}{
		{"Acquire", (*snib.Locker).Acquire},
		{"TryAcquire", (*snib.Locker).TryAcquire},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newKeptWorld(t)
				last := cycle(t, w.here)
				began := time.Now()
				lock, err := tt.acquire(w.there, t.Context(), "a")
				wantErr(t, tt.name, err, nil)
				if took := time.Since(began); took > 0 { // the store answers in no time
					t.Errorf("the lock was given back after %v", took)
				}
				if lock.Token() <= last {
					t.Errorf("the token %d came after %d", lock.Token(), last)
				}
				release(t, lock)
			})
		})
	}
}

// A lease that is really held is not given back, and a caller that does not wait learns that soon.
func TestHeldIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(t)
		cycle(t, w.here)
		lock := acquire(t, w.here, "a")
		began := time.Now()
		_, err := w.there.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire", err, snib.ErrHeld)
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("TryAcquire took %v", took)
		}
		if lock.Context().Err() != nil {
			t.Errorf("the hold ended: %v", context.Cause(lock.Context()))
		}
		release(t, lock)
		if st := w.status(t); len(st.Holders) > 0 {
			t.Errorf("a lease that another process wanted was kept: %+v", st.Holders)
		}
	})
}

// Nothing is kept for longer than Keep says, counted from the last release.
func TestKeepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(t)
		cycle(t, w.here)
		time.Sleep(keptFor / 2)
		cycle(t, w.here)
		time.Sleep(keptFor - time.Second)
		if st := w.status(t); len(st.Holders) != 1 {
			t.Errorf("a second before the end of Keep the holders are %+v, want one", st.Holders)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if st := w.status(t); len(st.Holders) != 0 {
			t.Errorf("after the end of Keep the holders are %+v", st.Holders)
		}
	})
}

// Close gives back what is kept.
func TestCloseEndsKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(t)
		cycle(t, w.here)
		wantErr(t, "Close", w.here.Close(), nil)
		if st := w.status(t); len(st.Holders) != 0 {
			t.Errorf("after Close the holders are %+v", st.Holders)
		}
	})
}

// A lease that has ended while it was kept serves nobody, however it ended.
func TestLostWhileKept(t *testing.T) {
	tests := []struct {
		name string
		lose func(*testing.T, *keptWorld)
	}{
		{"Broken", func(t *testing.T, w *keptWorld) {
			h := w.status(t).Holders[0]
			wantErr(t, "Break", w.store.Open().Break(t.Context(), "a", h.Owner, h.Token), nil)
		}},
		{"NotRenewed", func(_ *testing.T, w *keptWorld) {
			w.severed.Store(true)
			time.Sleep(time.Minute)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := 0
				w := newKeptWorld(t, snib.Tracing(&snib.Trace{Lost: func(snib.LostEvent) { lost++ }}))
				cycle(t, w.here)
				tt.lose(t, w)
				synctest.Wait()
				last := cycle(t, w.there)
				lock := acquire(t, w.here, "a")
				if lock.Token() <= last {
					t.Errorf("the token %d came after %d of another process", lock.Token(), last)
				}
				release(t, lock)
				synctest.Wait()
				if lost > 0 {
					t.Errorf("%d losses were told, although nobody held the lock", lost)
				}
			})
		})
	}
}

// An acquisition of this process for which the kept lease does not fit does not wait for it.
func TestKeptDoesNotFit(t *testing.T) {
	tests := map[string][]snib.Option{
		"TTL":      {snib.TTL(time.Minute)},
		"Label":    {snib.Label("other")},
		"Fencing":  {snib.RequireFencing(snib.FencingDurable)},
		"Shared":   {snib.Keep(0), snib.Shared()},
		"Slots":    {snib.Keep(0), snib.Slots(2)},
		"Fair":     {snib.Keep(0), snib.Fair()},
		"Owner":    {snib.Keep(0), snib.Owner("x")},
		"MinHold":  {snib.Keep(0), snib.MinHold(time.Second)},
		"Detached": {snib.Keep(0), snib.Detached()},
		"NoWait":   {snib.Keep(0), snib.NoWait(), snib.Shared()},
	}
	for name, opts := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newKeptWorld(t)
				last, began := cycle(t, w.here), time.Now()
				before, _ := w.spy.count()
				lock := acquire(t, w.here.With(opts...), "a")
				if n, _ := w.spy.count(); n == before {
					t.Error("Acquire did not ask the store")
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("Acquire took %v", took)
				}
				if lock.Token() <= last {
					t.Errorf("the token %d came after %d", lock.Token(), last)
				}
				release(t, lock)
			})
		})
	}
}

// Processes that take turns do almost as if there were no Keep.
func TestTurnsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(t)
		kept := 0
		const turns = 500
		for range turns {
			cycle(t, w.here)
			if len(w.status(t).Holders) > 0 {
				kept++
			}
			cycle(t, w.there)
		}
		if kept == 0 || kept > 20 {
			t.Errorf("in %d turns the lease was kept %d times, want 1 to 20", turns, kept)
		}
		for range 200 { // the other process has gone
			cycle(t, w.here)
		}
		if len(w.status(t).Holders) == 0 {
			t.Error("the lease is not kept again")
		}
	})
}

// The store shows that a lease is kept, once it has been for a while, and shows the hold again.
func TestKeptIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(t, snib.Label("the work"))
		label := func() string {
			synctest.Wait()
			return w.status(t).Holders[0].Holder.Label
		}
		check := func(when, want string) {
			t.Helper()
			if got := label(); got != want {
				t.Errorf("%s the label is %q, want %q", when, got, want)
			}
		}
		cycle(t, w.here)
		check("at first", "the work")
		time.Sleep(time.Second)
		check("after a second", driver.KeptLabel)
		lock := acquire(t, w.here, "a")
		check("in the next hold", "the work")
		time.Sleep(time.Minute)
		check("later", "the work")
		release(t, lock)
		time.Sleep(time.Minute)
		check("after its release", driver.KeptLabel)
		lock = acquire(t, w.here, "a")
		wantErr(t, "SetLabel", lock.SetLabel(t.Context(), "half of it"), nil)
		check("after SetLabel", "half of it")
		release(t, lock)
		if st := w.status(t); len(st.Holders) > 0 {
			t.Errorf("a lease with a label of its own is kept: %+v", st.Holders)
		}
	})
}

// MaxHold counts from the acquisition that uses a kept lease, not from the grant.
func TestKeptMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(t, snib.MaxHold(20*time.Second))
		cycle(t, w.here)
		time.Sleep(19 * time.Second)
		lock := acquire(t, w.here, "a")
		time.Sleep(19 * time.Second)
		if err := lock.Context().Err(); err != nil {
			t.Errorf("the hold ended after 19 s: %v", context.Cause(lock.Context()))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantErr(t, "Release", lock.Release(), snib.ErrLost)
	})
}

// A lease that is used often reserves more tokens, so that the store is asked rarely.
func TestKeptTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(t)
		const n = 20_000
		for range n {
			cycle(t, w.here)
		}
		if w.spy.acquires > 20 {
			t.Errorf("%d cycles took %d requests", n, w.spy.acquires)
		}
	})
}

func TestKeepRefused(t *testing.T) {
	silent := newSpy(new(memlock.Store))
	silent.info = func(i snib.Info) snib.Info { i.TellsWanted = false; return i }
	tests := []struct {
		name   string
		driver driver.Driver
		opts   []snib.Option
	}{
		{"Negative", memlock.New(), []snib.Option{snib.Keep(-1)}},
		{"Backend", silent, []snib.Option{snib.Keep(time.Second)}},
		{"Shared", memlock.New(), []snib.Option{snib.Keep(time.Second), snib.Shared()}},
		{"Slots", memlock.New(), []snib.Option{snib.Slots(2), snib.Keep(time.Second)}},
		{"Fair", memlock.New(), []snib.Option{snib.Keep(time.Second), snib.Fair()}},
		{"Owner", memlock.New(), []snib.Option{snib.Keep(time.Second), snib.Owner("x")}},
		{"MinHold", memlock.New(), []snib.Option{snib.Keep(time.Second), snib.MinHold(1)}},
		{"NoRenewal", memlock.New(), []snib.Option{snib.Keep(time.Second), snib.NoRenewal()}},
		{"Detached", memlock.New(), []snib.Option{snib.Keep(time.Second), snib.Detached()}},
		{"Label", memlock.New(), []snib.Option{snib.Label(driver.KeptLabel)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := snib.New(tt.driver, tt.opts...); !errors.Is(err, snib.ErrInvalid) {
				t.Errorf("New = %v, want ErrInvalid", err)
			}
		})
	}
	lock := acquire(t, open(t, memlock.New()), "a")
	wantErr(t, "SetLabel", lock.SetLabel(t.Context(), driver.KeptLabel), snib.ErrInvalid)
}
