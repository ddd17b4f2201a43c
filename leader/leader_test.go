package leader_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/leader"
	"github.com/sniblock/snib/memlock"
)

const (
	name = "reconciler"
	ttl  = 30 * time.Second
)

var errJob = errors.New("the job failed")

// host returns what another host has: its own Locker on the same store, and its connection to
// the store, which a test can cut.
func host(t *testing.T, s *memlock.Store, opts ...snib.Option) (*snib.Locker, *fault.Driver) {
	t.Helper()
	d := fault.Wrap(reticent{s.Open()}, fault.Plan{})
	l, err := snib.New(d, append([]snib.Option{snib.TTL(ttl)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, d
}

// A reticent driver tells of a loss at the next renewal only, as most stores do.
type reticent struct{ driver.Driver }

func (d reticent) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.OnLost = func(error) {}
	return d.Driver.Acquire(ctx, req)
}

// start campaigns in the background. The channel receives what Run returns.
func start(ctx context.Context, l *snib.Locker, fn func(context.Context, *snib.Lock) error,
	opts ...leader.Option) <-chan error {
	done := make(chan error, 1)
	go func() { done <- leader.Run(ctx, l, name, fn, opts...) }()
	return done
}

// lead leads until its context ends.
func lead(ctx context.Context, _ *snib.Lock) error {
	<-ctx.Done()
	return ctx.Err()
}

// isFree reports whether another process can become the leader at once.
func isFree(t *testing.T, s *memlock.Store) bool {
	t.Helper()
	l, _ := host(t, s)
	lock, err := l.TryAcquire(t.Context(), name)
	if errors.Is(err, snib.ErrHeld) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err = lock.Release(); err != nil {
		t.Fatal(err)
	}
	return true
}

// Of three candidates one leads at a time. Each leads in turn when the others resign,
// with a greater token each time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var leading, terms [3]int
		var last uint64
		var dones []<-chan error
		for i := range 3 {
			l, _ := host(t, s)
			dones = append(dones, start(ctx, l, func(ctx context.Context, lock *snib.Lock) error {
				mu.Lock()
				leading[i]++
				terms[i]++
				if leading[0]+leading[1]+leading[2] != 1 || lock.Token() <= last {
					t.Errorf("leaders %v, token %d after %d", leading, lock.Token(), last)
				}
				last = lock.Token()
				mu.Unlock()
				select {
				case <-time.After(2 * ttl): // long enough to depend on renewals
				case <-ctx.Done():
				}
				mu.Lock()
				leading[i]--
				mu.Unlock()
				return nil
			}))
		}
		time.Sleep(30 * 2 * ttl)
		cancel()
		for _, done := range dones {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v, want the cause of its context", err)
			}
		}
		if slices.Min(terms[:]) < 9 {
			t.Errorf("of 30 terms, the three served %v", terms)
		}
	})
}

// A leader that is cut off gets the cause before another one leads, and campaigns again.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, net := host(t, s)
		var terms int
		var told, led time.Time
		var cause error
		var reported []error
		first := start(ctx, a, func(ctx context.Context, _ *snib.Lock) error {
			terms++
			<-ctx.Done()
			if terms == 1 {
				told, cause = time.Now(), context.Cause(ctx)
			}
			return errJob // the work failed because of the loss
		}, leader.OnError(func(err error) { reported = append(reported, err) }))
		synctest.Wait()

		b, _ := host(t, s)
		ctxB, resign := context.WithCancel(ctx)
		second := start(ctxB, b, func(ctx context.Context, lock *snib.Lock) error {
			led = time.Now()
			return lead(ctx, lock)
		})
		net.Sever(fault.Hang)
		time.Sleep(2 * ttl)
		synctest.Wait()
		if told.IsZero() || led.IsZero() || !told.Before(led) || !errors.Is(cause, snib.ErrLost) {
			t.Errorf("the first was told at %v (%v), and the second led at %v", told, cause, led)
		}
		net.Heal()
		resign()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("Run of the second = %v", err)
		}
		time.Sleep(2 * ttl)
		synctest.Wait()
		if terms != 2 {
			t.Errorf("the first led for %d terms, want 2", terms)
		}
		if !slices.ContainsFunc(reported, func(err error) bool {
			return errors.Is(err, errJob) &&
				errors.Is(err, snib.ErrLost)
		}) {
			t.Errorf("OnError was told %v, want also what fn returned, as lost", reported)
		}
		cancel()
		<-first
	})
}

// Run handles each way in which fn can end.
func TestEnds(t *testing.T) {
	tests := []struct {
		name  string
		fn    func(n int) error // the n-th call
		terms int
		want  error
		panic any
		// before, if set, is called with the first hold before fn returns.
		before func(s *memlock.Store, lock *snib.Lock) error
	}{
		{name: "Nil", fn: func(n int) error {
			if n < 3 {
				return nil
			}
			return errJob
		}, terms: 3, want: errJob},
		{name: "Error", fn: func(int) error { return errJob }, terms: 1, want: errJob},
		{name: "ErrorAfterRelease", fn: func(int) error { return errJob }, terms: 1, want: errJob,
			before: func(_ *memlock.Store, lock *snib.Lock) error { return lock.Release() }},
		{name: "ErrorAfterBreak", fn: func(int) error { return errJob }, terms: 2, want: errJob,
			before: func(s *memlock.Store, lock *snib.Lock) error { return s.Open().Break(lock.Context(), name, lock.ID()) }},
		// the loss of another lock
		{name: "ForeignLoss", fn: func(int) error { return snib.ErrLost }, terms: 1, want: snib.ErrLost},
		{name: "ForeignHeld", fn: func(int) error { return snib.ErrHeld }, terms: 1, want: snib.ErrHeld},
		{name: "Panic", fn: func(int) error { panic("ouch") }, terms: 1, panic: "ouch"},
		{name: "Goexit", fn: func(int) error { runtime.Goexit(); return nil }, terms: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(memlock.Store)
				l, _ := host(t, s)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				terms := 0
				var err error
				var caught any
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { caught = recover() }()
					err = leader.Run(ctx, l, name, func(_ context.Context, lock *snib.Lock) error {
						terms++
						if tt.before != nil && terms == 1 {
							if err := tt.before(s, lock); err != nil {
								t.Error(err)
							}
						}
						return tt.fn(terms)
					})
				}()
				<-done
				if !errors.Is(err, tt.want) || caught != tt.panic || terms != tt.terms {
					t.Errorf("Run = %v, panic %v, after %d terms; want %v, %v, %d", err, caught, terms, tt.want, tt.panic, tt.terms)
				}
				if !isFree(t, s) {
					t.Error("the leader has not resigned")
				}
			})
		})
	}
}

// While a leader winds down after the end of ctx, it still leads, longer than its TTL.
func TestWindsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		l, _ := host(t, s)
		stop := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		var cause error
		done := start(ctx, l, func(ctx context.Context, _ *snib.Lock) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(3 * ttl)
			return nil
		})
		synctest.Wait()
		cancel(stop)
		time.Sleep(2 * ttl)
		if isFree(t, s) {
			t.Error("another one could lead while the leader wound down")
		}
		if err := <-done; !errors.Is(err, stop) || !errors.Is(cause, stop) {
			t.Errorf("Run = %v, cause of fn's context %v, want %v", err, cause, stop)
		}
		if !isFree(t, s) {
			t.Error("the leader has not resigned")
		}
	})
}

// When ctx ends, Run returns: during a campaign, during a pause, and with the error of fn.
func TestStops(t *testing.T) {
	stop := errors.New("shutting down")
	tests := []struct {
		name string
		held bool // by another host
		fn   func(context.Context, *snib.Lock) error
		want error
	}{
		{name: "Campaign", held: true, fn: lead, want: stop},
		{name: "Pause", fn: func(context.Context, *snib.Lock) error { return nil }, want: stop},
		{name: "Failure", fn: func(ctx context.Context, _ *snib.Lock) error { <-ctx.Done(); return errJob }, want: errJob},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(memlock.Store)
				l, _ := host(t, s)
				other, _ := host(t, s)
				if tt.held {
					if _, err := other.Acquire(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				done := start(ctx, l, tt.fn, leader.Pause(time.Hour))
				synctest.Wait()
				began := time.Now()
				cancel(stop)
				if err := <-done; !errors.Is(err, tt.want) || time.Since(began) != 0 {
					t.Errorf("Run = %v after %v, want %v at once", err, time.Since(began), tt.want)
				}
			})
		})
	}
}

// While the store is out of reach there are few attempts, spread out, and each is reported. Once
// the store is back, somebody leads soon.
func TestStoreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, net := host(t, new(memlock.Store), snib.RetryTimeout(0)) // the pauses are those of leader alone
		net.Sever(fault.Fail)
		ctx, cancel := context.WithCancel(t.Context())
		var tries []time.Time
		var led time.Time
		done := start(ctx, l, func(ctx context.Context, lock *snib.Lock) error {
			led = time.Now()
			return lead(ctx, lock)
		}, leader.OnError(func(err error) {
			if !errors.Is(err, fault.ErrSevered) {
				t.Errorf("OnError(%v), want the store's error", err)
			}
			tries = append(tries, time.Now())
		}))
		time.Sleep(time.Hour)
		healed := time.Now()
		net.Heal()
		time.Sleep(time.Minute)
		cancel()
		<-done

		within := func(i int, pause time.Duration) time.Duration {
			got := tries[i].Sub(tries[i-1])
			if got < pause/2 || got >= pause*3/2 {
				t.Errorf("pause %d was %v, want %v to %v", i, got, pause/2, pause*3/2)
			}
			return got
		}
		if len(tries) < 3600/24 {
			t.Fatalf("%d tries in an hour", len(tries))
		}
		for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			within(i+1, pause)
		}
		pauses := make(map[time.Duration]bool)
		for i := 5; i < len(tries); i++ {
			pauses[within(i, 16*time.Second)] = true
		}
		if len(pauses) < 100 {
			t.Errorf("candidates that fail together try again together: %d different pauses of %d", len(pauses), len(tries)-5)
		}
		if took := led.Sub(healed); led.IsZero() || took > 24*time.Second {
			t.Errorf("after the store was back it took %v", took)
		}
	})
}

// A success makes the pauses short again, and another leader is not an error.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		l, net := host(t, s, snib.MaxWait(time.Second))
		other, _ := host(t, s)
		held, err := other.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var led []time.Time
		errs := 0
		done := start(ctx, l, func(context.Context, *snib.Lock) error {
			led = append(led, time.Now())
			return nil
		}, leader.Pause(10*time.Second), leader.OnError(func(error) { errs++ }))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := net.Calls(fault.Acquire); errs != 0 || len(led) != 0 || n < 3600/(15+1) {
			t.Errorf("while another one led for an hour there were %d terms, %d errors, and %d campaigns", len(led), errs, n)
		}
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		cancel()
		<-done
		if len(led) < 3600/15 {
			t.Fatalf("%d terms in an hour", len(led))
		}
		for i := 1; i < len(led); i++ {
			if pause := led[i].Sub(led[i-1]); pause < 5*time.Second || pause >= 15*time.Second {
				t.Errorf("pause %d after a term was %v", i, pause)
			}
		}
	})
}

// Permanent errors end Run at once.
func TestRefuses(t *testing.T) {
	never := func(context.Context, *snib.Lock) error { return errors.New("fn was called") }
	l, _ := host(t, new(memlock.Store))
	closed, _ := host(t, new(memlock.Store))
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	semaphore, err := l.With(snib.Slots(2)).Acquire(t.Context(), "semaphore")
	if err != nil {
		t.Fatal(err)
	}
	defer semaphore.Release()
	mine, err := l.Acquire(t.Context(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Release()
	tests := []struct {
		name   string
		ctx    context.Context
		locker *snib.Locker
		lock   string
		fn     func(context.Context, *snib.Lock) error
		opts   []leader.Option
		want   error
	}{
		{name: "Name", locker: l, lock: "", fn: never, want: snib.ErrInvalid},
		{name: "Locker", lock: name, fn: never, want: snib.ErrInvalid},
		{name: "Function", locker: l, lock: name, want: snib.ErrInvalid},
		{name: "Option", locker: l.With(snib.TTL(-1)), lock: name, fn: never, want: snib.ErrInvalid},
		{name: "Pause", locker: l, lock: name, fn: never, opts: []leader.Option{leader.Pause(0)}, want: snib.ErrInvalid},
		{name: "LongPause", locker: l, lock: name, fn: never, opts: []leader.Option{leader.Pause(math.MaxInt64)},
			want: snib.ErrInvalid},
		{name: "OnError", locker: l, lock: name, fn: never, opts: []leader.Option{leader.OnError(nil)},
			want: snib.ErrInvalid},
		{name: "ZeroOption", locker: l, lock: name, fn: never, opts: []leader.Option{{}}, want: snib.ErrInvalid},
		{name: "Kind", locker: l, lock: "semaphore", fn: never, want: snib.ErrKind},
		{name: "Nested", ctx: mine.Context(), locker: l, lock: "mine", fn: never, want: snib.ErrNested},
		{name: "Closed", locker: closed, lock: name, fn: never, want: snib.ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := leader.Run(ctx, tt.locker, tt.lock, tt.fn, tt.opts...); !errors.Is(err, tt.want) {
				t.Errorf("Run = %v, want %v", err, tt.want)
			}
		})
	}
}
