package snib_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// Each hold of a local run has a token of its own, greater than the one before, and the
// store grants none of them again.
func TestLocalTokensIncrease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		a, b := open(t, store.Open()), open(t, store.Open())
		var last uint64
		var local int
		trace := &snib.Trace{WaitEnded: func(e snib.WaitEndedEvent) {
			if e.Local {
				local++
			}
		}}
		var wg sync.WaitGroup
		for i := range 8 {
			l := []*snib.Locker{a.With(snib.Tracing(trace)), b.With(snib.Tracing(trace))}[i%2]
			wg.Go(func() {
				for range 50 {
					lock := acquire(t, l, "a")
					if lock.Token() <= last {
						t.Errorf("token %d after %d", lock.Token(), last)
					}
					last = lock.Token()
					// Let the others queue, while the store's clock hardly moves.
					time.Sleep(time.Nanosecond)
					release(t, lock)
				}
			})
		}
		wg.Wait()
		if local == 0 {
			t.Error("no hold was handed over locally: nothing was tested")
		}
	})
}

// A local run ends for waiters that wait in the store: those of another process, and those whose
// options keep them out of the local queue.
func TestLocalRunEnds(t *testing.T) {
	tests := []struct {
		name         string
		otherProcess bool
		opts         []snib.Option
	}{
		{name: "OtherProcess", otherProcess: true},
		{name: "Fair", opts: []snib.Option{snib.Fair()}},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			store := new(memlock.Store)
			here := open(t, store.Open())
			outside := here.With(tt.opts...)
			if tt.otherProcess {
				outside = open(t, store.Open())
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var holds atomic.Int64
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lock := acquire(t, here, "a")
						holds.Add(1)
						time.Sleep(time.Millisecond)
						release(t, lock)
					}
				})
			}
			time.Sleep(time.Second)
			before := holds.Load()
			lock := acquire(t, outside, "a")
			if n := holds.Load() - before; n > 10 { // those of 5 ms, and those already begun
				t.Errorf("the lock was granted after %d more holds of the local run", n)
			}
			release(t, lock)
			cancel()
			wg.Wait()
			if before < 500 {
				t.Errorf("only %d holds in a second of 1 ms holds", before)
			}
		})
	}
}

// A lease is not handed over locally if the store has to know of each hold, or to a
// hold with another TTL or delay.
func TestNoLocalHandOver(t *testing.T) {
	tests := []struct {
		name  string
		first []snib.Option
		next  []snib.Option
	}{
		{"OtherTTL", nil, []snib.Option{snib.TTL(time.Minute)}},
		{"OtherDelay", nil, []snib.Option{snib.LockDelay(time.Second)}},
		{"NoRenewal", []snib.Option{snib.NoRenewal()}, []snib.Option{snib.NoRenewal()}},
		{"MinHold", nil, []snib.Option{snib.MinHold(time.Second)}},
		{"Shared", nil, []snib.Option{snib.Shared()}},
		{"FromMinHold", []snib.Option{snib.MinHold(time.Second)}, nil},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
				time.Sleep(time.Millisecond) // the store's clock gets ahead of the many tokens
				l, err := send()
				return &manyTokensLease{l}, err
			}
			l := open(t, d)
			first := acquire(t, l.With(tt.first...), "a")
			done := make(chan *snib.Lock)
			go func() { done <- acquire(t, l.With(tt.next...), "a") }()
			synctest.Wait()
			release(t, first)
			release(t, <-done)
			if n, _ := d.count(); n != 2 {
				t.Errorf("the store was asked %d times, want twice", n)
			}
		})
	}
}

// Tokens are reserved only for waiters that can take the lease over: unused tokens put the
// store's tokens ahead of its clock.
func TestReservesNoTokensInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		var requested []int
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			requested = append(requested, req.Tokens)
			return send()
		}
		l := open(t, d)
		held := acquire(t, l, "a")
		var wg sync.WaitGroup
		for i := range 40 {
			other := l
			if i > 0 {
				other = l.With(snib.TTL(time.Minute), snib.MinHold(1))
			}
			wg.Go(func() { release(t, acquire(t, other, "a")) })
			synctest.Wait()
		}
		release(t, held)
		wg.Wait()
		for i, n := range requested {
			if n > 1 {
				t.Errorf("request %d of %d reserved %d tokens", i, len(requested), n)
			}
		}
	})
}

// manyTokensLease is a lease with many tokens, whatever was requested.
type manyTokensLease struct{ driver.Lease }

func (l *manyTokensLease) Grant() driver.Grant {
	g := l.Lease.Grant()
	g.Tokens = 100
	return g
}

// A lease is handed over within the process only while the store's last confirmation is fresh.
// The store of this test reports a Break in renewals only.
func TestStaleHandOver(t *testing.T) {
	for _, held := range []time.Duration{0, 20 * time.Millisecond, ttl / 4} {
		bubble(t, held.String(), func(t *testing.T) {
			store := new(memlock.Store)
			d := newSpy(store)
			d.acquire = func(ctx context.Context, req driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
				req.OnLost = nil
				return d.Driver.Acquire(ctx, req)
			}
			ours, theirs := open(t, d), open(t, store.Open())
			first, got := acquireWithWaiters(t, ours, "a")
			if err := store.Open().Break(t.Context(), "a", first.ID()); err != nil {
				t.Fatal(err)
			}
			other := acquire(t, theirs, "a")
			release(t, other)
			time.Sleep(held)
			err := first.Release()
			next := <-got
			// This is within confirmInterval: a resource that checks
			// tokens refuses the next hold.
			if held == 0 {
				return
			}
			wantErr(t, "Release of a hold whose lease the store had ended", err, snib.ErrLost)
			if next.Token() <= other.Token() {
				t.Errorf("token of the next local hold = %d, want more than %d, which another process had", next.Token(),
					other.Token())
			}
		})
	}
}

// TestStaleHandOverOfAll confirms a lease for a hand-over, which fails. Meanwhile the answer to an
// old renewal of all leases arrives, which does not confirm the lease as it is now.
func TestStaleHandOverOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.together = true
		until := make(chan struct{})
		d.renew = func(ctx context.Context, due []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			if len(due) == 0 {
				defer func() { <-until }()
				return send()
			}
			close(until)
			synctest.Wait()
			return unreachable(ctx, due, send)
		}
		first, got := acquireWithWaiters(t, open(t, d), "a")
		time.Sleep(ttl / 2)
		before, _ := d.count()
		release(t, first)
		next := <-got
		if after, _ := d.count(); after == before {
			t.Errorf("the lease was handed over %v after its last confirmation", ttl/6)
		}
		release(t, next)
	})
}

// The confirmation costs one renewal for each interval, not for each hand-over. Without a
// confirmation the lease is released in the store.
func TestConfirmation(t *testing.T) {
	tests := []struct {
		name     string
		renew    func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal
		pause    time.Duration // how long the first hold lasts
		renewals int           // during the hand-overs
		releases int           // in the store
	}{
		{name: "Fresh", renewals: 0, releases: 2},
		{name: "Old", pause: 20 * time.Millisecond, renewals: 1, releases: 2},
		{name: "Unanswered", renew: unreachable, pause: 20 * time.Millisecond, renewals: 1, releases: 3},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			d.renew = tt.renew
			first, got := acquireWithWaiters(t, open(t, d), "a")
			time.Sleep(tt.pause)
			release(t, first)
			next := <-got
			release(t, next)
			_, releases := d.count()
			if len(d.batches) != tt.renewals || releases != tt.releases {
				t.Errorf("%d renewals and %d releases, want %d and %d", len(d.batches), releases, tt.renewals, tt.releases)
			}
		})
	}
}

// acquireWithWaiters returns a hold with reserved tokens, and a channel that receives the hold of
// the goroutine that waits behind it.
func acquireWithWaiters(t *testing.T, l *snib.Locker, name string) (*snib.Lock, <-chan *snib.Lock) {
	t.Helper()
	before := acquire(t, l, name)
	got := make(chan *snib.Lock, 2)
	for range 2 {
		go func() {
			lock, err := l.Acquire(t.Context(), name)
			if err != nil {
				t.Errorf("Acquire = %v", err)
			}
			got <- lock
		}()
	}
	synctest.Wait()
	release(t, before)
	return <-got, got
}

// The next holder in the process begins only after the contexts of the previous hold have ended.
func TestHandOverAfterContextsEnd(t *testing.T) {
	l := open(t, memlock.New())
	one := acquire(t, l, "a")
	release(t, one)
	const children = 50_000
	var alive []context.Context
	var wg sync.WaitGroup
	held := acquire(t, l, "a")
	waiting := make(chan struct{})
	for range 2 { // the first of them makes the store reserve a token for the second
		wg.Go(func() {
			waiting <- struct{}{}
			lock := acquire(t, l, "a")
			for i, ctx := range alive {
				if ctx.Err() == nil {
					t.Errorf("context %d of %d of the last hold is alive", i, len(alive))
					break
				}
			}
			alive = nil
			for range children {
				ctx, cancel := context.WithCancel(lock.Context())
				alive = append(alive, ctx)
				defer cancel()
			}
			release(t, lock)
		})
		<-waiting
	}
	release(t, held)
	wg.Wait()
}

// If a waiter gives up at the hand-over, nobody had the hold, and no Trace is called.
func TestGiveUpAtHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acquired, released atomic.Int64
		trace := &snib.Trace{
			WaitEnded: func(e snib.WaitEndedEvent) {
				if e.Err == nil {
					acquired.Add(1)
				}
			},
			Released: func(snib.ReleasedEvent) { released.Add(1) },
		}
		d := newSpy(new(memlock.Store))
		d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			l, err := send()
			return &manyTokensLease{l}, err
		}
		l := open(t, d, snib.Tracing(trace))
		for range 100 {
			held := acquire(t, l, "a")
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if lock, err := l.Acquire(ctx, "a"); err == nil {
					release(t, lock)
				}
			})
			synctest.Wait()
			release(t, held)
			cancel() // mostly before the waiter has run
			wg.Wait()
		}
		if acquired.Load() != released.Load() {
			t.Errorf("told of %d acquired and %d released", acquired.Load(), released.Load())
		}
	})
}
