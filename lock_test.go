package snib_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

func TestAcquireAndRelease(t *testing.T) {
	l := open(t, memlock.New(), snib.Prefix("app/"))
	lock := acquire(t, l, "a")
	if got, want := lock.Name(), "app/a"; got != want {
		t.Errorf("Name = %q, want %q", got, want)
	}
	ctx := lock.Context()
	if ctx.Err() != nil || lock.Validity() <= 0 {
		t.Errorf("a new hold: context %v, validity %v", ctx.Err(), lock.Validity())
	}
	_, err := l.TryAcquire(t.Context(), "a")
	wantErr(t, "TryAcquire of a held lock", err, snib.ErrHeld)
	release(t, lock)
	wantErr(t, "cause", context.Cause(ctx), snib.ErrReleased)
	if isClosed(lock.Lost()) || lock.Validity() != 0 {
		t.Errorf("a released hold: lost %v, validity %v", isClosed(lock.Lost()), lock.Validity())
	}
	release(t, lock) // again
	next := acquire(t, l, "a")
	if next.Token() <= lock.Token() {
		t.Errorf("token %d after %d", next.Token(), lock.Token())
	}
	release(t, next)
}

// A context that is first requested after Release is done.
func TestContextAfterRelease(t *testing.T) {
	lock := acquire(t, open(t, memlock.New()), "a")
	release(t, lock)
	wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrReleased)
}

// The context of Acquire bounds the wait, not the hold.
func TestHoldOutlivesAcquireContext(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	store := new(memlock.Store)
	lock, err := open(t, store.Open()).Acquire(ctx, "a")
	wantErr(t, "Acquire", err, nil)
	cancel()
	if err := lock.Context().Err(); err != nil {
		t.Errorf("the hold ended with the context of its Acquire: %v", err)
	}
	if got := lock.Context().Value(key{}); got != "kept" {
		t.Errorf("value of Acquire's context = %v", got)
	}
	release(t, lock) // after its context was cancelled: the most common bug
	if _, err := open(t, store.Open()).TryAcquire(t.Context(), "a"); err != nil {
		t.Errorf("the release under a cancelled context stranded the lock: %v", err)
	}
}

func TestWaitErrors(t *testing.T) {
	errEnough := errors.New("enough")
	tests := []struct {
		name string
		opts []snib.Option
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		{"NoWait", []snib.Option{snib.NoWait()}, nil, snib.ErrHeld},
		{"MaxWait", []snib.Option{snib.MaxWait(time.Second)}, nil, snib.ErrHeld},
		{"Deadline", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded},
		{"Cause", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, errEnough)
		}, errEnough},
		{"DoneBefore", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(errEnough)
			return ctx, func() {}
		}, errEnough},
	}
	for _, tt := range tests {
		for _, where := range []string{"InProcess", "InStore"} {
			t.Run(tt.name+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := new(memlock.Store)
					l := open(t, store.Open(), tt.opts...)
					holder := l
					if where == "InStore" {
						holder = open(t, store.Open())
					}
					lock := acquire(t, holder, "a")
					ctx := t.Context()
					if tt.ctx != nil {
						c, cancel := tt.ctx(ctx)
						defer cancel()
						ctx = c
					}
					_, err := l.Acquire(ctx, "a")
					wantErr(t, "Acquire of a held lock", err, tt.want)
					var e *snib.Error
					if !errors.As(err, &e) || e.Op != "acquire" || e.Name != "a" || e.Backend != "memory" {
						t.Errorf("error %#v does not say operation, name and backend", err)
					}
					release(t, lock)
					release(t, acquire(t, l, "a")) // nothing was left behind
				})
			})
		}
	}
}

func TestReleaseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.release = func(ctx context.Context, _ func() error) error {
			<-ctx.Done() // the store does not answer
			return ctx.Err()
		}
		l := open(t, d)
		lock := acquire(t, l, "a")
		began := time.Now()
		wantErr(t, "Release", lock.Release(), snib.ErrUnavailable)
		if got, want := time.Since(began), 5*time.Second; got != want {
			t.Errorf("Release took %v, want %v", got, want)
		}
		d.release = nil
		release(t, acquire(t, l, "a")) // it lapsed
		if got := time.Since(began); got > ttl {
			t.Errorf("the lock was free after %v, want at most a TTL of %v", got, ttl)
		}
	})
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		a, b := open(t, store.Open(), snib.MinHold(time.Minute)), open(t, store.Open())
		began := time.Now()
		release(t, acquire(t, a, "tick"))
		if time.Since(began) != 0 {
			t.Errorf("Release waited for %v", time.Since(began))
		}
		_, err := b.TryAcquire(t.Context(), "tick")
		wantErr(t, "TryAcquire on the host with the slow clock", err, snib.ErrHeld)
		_, err = a.TryAcquire(t.Context(), "tick")
		wantErr(t, "TryAcquire in the same process", err, snib.ErrHeld)
		release(t, acquire(t, b, "tick"))
		if got := time.Since(began); got != time.Minute {
			t.Errorf("the lock was free after %v, want a minute", got)
		}
	})
}

// After a lost hold the lock stays closed for the delay. After a released one it does not.
func TestLockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, delay = 10 * time.Second, time.Minute
		store := new(memlock.Store)
		d := newSpy(store)
		detached := false
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			detached = req.Detached
			return send()
		}
		a, b := open(t, d, snib.TTL(ttl), snib.LockDelay(delay)), open(t, store.Open())

		lock := acquire(t, a, "a")
		time.Sleep(time.Hour)
		if isClosed(lock.Lost()) || !detached {
			t.Errorf("lost: %v; asked for a lease that outlives the process: %v", isClosed(lock.Lost()), detached)
		}
		release(t, lock)
		began := time.Now()
		release(t, acquire(t, b, "a"))
		if got := time.Since(began); got != 0 {
			t.Errorf("after Release the lock was closed for %v", got)
		}

		d.renew = unreachable
		lock, began = acquire(t, a, "a"), time.Now()
		<-lock.Lost()
		lost := time.Since(began)
		if lost > ttl || lost < ttl*9/10 {
			t.Errorf("the hold was lost after %v, want little less than %v", lost, ttl)
		}
		wantErr(t, "Release of what was lost", lock.Release(), snib.ErrLost)
		release(t, acquire(t, b, "a"))
		if got := time.Since(began); got != ttl+delay {
			t.Errorf("the lock was closed for %v, want %v", got, ttl+delay)
		}
	})
}

// Where a lease ends with its session, the delay is subtracted from the time that the hold lasts.
func TestLockDelayOfSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.info = func(i driver.Info) driver.Info {
			i.Tenure, i.SessionTTL = driver.TenureSession, time.Minute
			return i
		}
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if req.Detached {
				t.Error("asked for a Detached lease in a session")
			}
			l, err := send()
			return &sessionLease{l}, err
		}
		_, err := snib.New(d, snib.LockDelay(time.Minute))
		wantErr(t, "New with a delay as long as the session", err, snib.ErrInvalid)
		lock := acquire(t, open(t, d, snib.LockDelay(40*time.Second)), "a")
		if got := lock.Validity(); got > 20*time.Second || got < 19*time.Second {
			t.Errorf("Validity = %v, want little less than 20s", got)
		}
		release(t, lock)
	})
}

// Where a lease ends with its session, the lease of a lost hold is released when its TTL and the
// delay are over, although the session lives on and no renewal has failed.
func TestLostLeaseOfSession(t *testing.T) {
	const length, session, maxHold, delay = 24 * time.Hour, time.Minute, 5 * time.Second, 20 * time.Second
	tests := []struct {
		name    string
		opts    []snib.Option
		release bool
		closed  time.Duration
	}{
		{"NotReleased", nil, false, session},
		{"Released", nil, true, maxHold},
		{"DelayNotReleased", []snib.Option{snib.LockDelay(delay)}, false, session},
		{"DelayReleased", []snib.Option{snib.LockDelay(delay)}, true, session},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(memlock.Store)
				d := newSpy(store)
				d.info = func(i driver.Info) driver.Info {
					i.Tenure, i.SessionTTL = driver.TenureSession, session
					return i
				}
				d.acquire = func(ctx context.Context, req driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
					req.TTL = length
					l, err := d.Driver.Acquire(ctx, req)
					return &sessionLease{l}, err
				}
				ours, theirs := open(t, d, append(test.opts, snib.MaxHold(maxHold))...), open(t, store.Open())
				lock, began := acquire(t, ours, "a"), time.Now()
				<-lock.Lost()
				if test.release {
					wantErr(t, "Release of what was lost", lock.Release(), snib.ErrLost)
				}
				release(t, acquire(t, theirs, "a"))
				if got := time.Since(began); got != test.closed {
					t.Errorf("the lock was closed for %v, want %v", got, test.closed)
				}
				wantErr(t, "Release of what was lost", lock.Release(), snib.ErrLost)
			})
		})
	}
}

// An owner that acquires the lease of its lost hold again keeps it.
func TestLostLeaseOfOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		d.info = func(i driver.Info) driver.Info {
			i.Tenure, i.SessionTTL = driver.TenureSession, time.Minute
			return i
		}
		l := open(t, d, snib.Owner("o"), snib.TTL(time.Minute))
		lost := acquire(t, l.With(snib.MaxHold(time.Second)), "a")
		<-lost.Lost()
		lock := acquire(t, l, "a")
		time.Sleep(time.Hour)
		wantErr(t, "Release of what was lost", lost.Release(), snib.ErrLost)
		if _, releases := d.count(); releases > 0 {
			t.Errorf("the store was asked for %d releases", releases)
		}
		release(t, lock)
	})
}

// sessionLease is a lease with the TTL of a session, one minute.
type sessionLease struct{ driver.Lease }

func (l *sessionLease) Grant() driver.Grant {
	g := l.Lease.Grant()
	g.TTL = time.Minute
	return g
}

// An owner that acquires again gets the same hold again.
func TestOwnerIsIdempotent(t *testing.T) {
	l := open(t, memlock.New(), snib.Owner("terraform-4711"), snib.RequireFencing(snib.FencingClock))
	one, two := acquire(t, l, "state"), acquire(t, l, "state")
	if one.Token() != two.Token() || one.Owner() != "terraform-4711" {
		t.Errorf("tokens %d and %d, owner %q", one.Token(), two.Token(), one.Owner())
	}
	release(t, one)
	wantErr(t, "second Release of one lease", two.Release(), nil)
}

func TestSharedAndSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, memlock.New())
		read, write, pool := l.With(snib.Shared()), l.With(snib.NoWait()), l.With(snib.Slots(2), snib.NoWait())
		r1, r2 := acquire(t, read, "rw"), acquire(t, read, "rw")
		_, err := write.Acquire(t.Context(), "rw")
		wantErr(t, "writer beside readers", err, snib.ErrHeld)
		release(t, r1)
		release(t, r2)
		w := acquire(t, write, "rw")
		_, err = read.TryAcquire(t.Context(), "rw")
		wantErr(t, "reader beside a writer", err, snib.ErrHeld)
		_, err = pool.Acquire(t.Context(), "rw")
		wantErr(t, "semaphore of a locked name", err, snib.ErrHeld)
		release(t, w)

		var wg sync.WaitGroup
		for range 2 { // concurrently: neither may be refused
			wg.Go(func() { acquire(t, pool, "pool") })
		}
		wg.Wait()
		_, err = pool.Acquire(t.Context(), "pool")
		wantErr(t, "third of two", err, snib.ErrHeld)
		_, err = l.With(snib.Slots(3)).TryAcquire(t.Context(), "pool")
		wantErr(t, "another size", err, snib.ErrKind)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := snib.New(memlock.New())
		wantErr(t, "New", err, nil)
		lock := acquire(t, l, "a")
		errs := make(chan error, 2)
		for range 2 { // one waits in the store, one in the process
			go func() {
				_, err := l.Acquire(context.Background(), "a")
				errs <- err
			}()
		}
		synctest.Wait()
		wantErr(t, "Close", l.Close(), nil)
		wantErr(t, "a waiting Acquire", <-errs, snib.ErrClosed)
		wantErr(t, "a waiting Acquire", <-errs, snib.ErrClosed)
		wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrLost)
		wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrClosed)
		wantErr(t, "Release", lock.Release(), snib.ErrLost)
		_, err = l.Acquire(t.Context(), "b")
		wantErr(t, "Acquire after Close", err, snib.ErrClosed)
		wantErr(t, "Close again", l.Close(), nil)
	})
}

func TestWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		a, b := open(t, store.Open()), open(t, store.Open())
		lock := acquire(t, a, "a")
		if isClosed(lock.Wanted()) {
			t.Error("wanted by nobody")
		}
		go func() {
			if l, err := b.Acquire(t.Context(), "a"); err == nil {
				_ = l.Release()
			}
		}()
		<-lock.Wanted()
		release(t, lock)
	})
}

func TestTokenRegression(t *testing.T) {
	for _, required := range []bool{true, false} {
		t.Run(fmt.Sprintf("Required=%v", required), func(t *testing.T) {
			var events []snib.RegressedEvent
			trace := &snib.Trace{Regressed: func(e snib.RegressedEvent) { events = append(events, e) }}
			d := newSpy(new(memlock.Store))
			opts := []snib.Option{snib.Tracing(trace)}
			if required {
				opts = append(opts, snib.RequireFencing(snib.FencingClock))
			}
			l := open(t, d, opts...)
			first := acquire(t, l, "a")
			release(t, first)
			d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
				l, err := send()
				return &oldTokenLease{l, first.Token()}, err
			}
			lock, err := l.Acquire(t.Context(), "a")
			if required {
				wantErr(t, "Acquire with an old token", err, snib.ErrRegressed)
				d.acquire = nil
				lock, err = l.TryAcquire(t.Context(), "a")
				wantErr(t, "TryAcquire after the refused lease was given back", err, nil)
			}
			wantErr(t, "Release", lock.Release(), nil)
			if len(events) != 1 || events[0].Token != first.Token() || events[0].Last != first.Token() {
				t.Errorf("the trace was told %+v", events)
			}
		})
	}
}

type oldTokenLease struct {
	driver.Lease
	token uint64
}

func (l *oldTokenLease) Grant() driver.Grant {
	g := l.Lease.Grant()
	g.Token = l.token
	return g
}

func TestLeakIsReportedAndReleased(t *testing.T) {
	leaks := make(chan snib.LeakedEvent, 1)
	trace := &snib.Trace{Leaked: func(e snib.LeakedEvent) { leaks <- e }}
	l := open(t, memlock.New(), snib.TrackLeaks(), snib.Tracing(trace))
	forget := func() {
		lock := acquire(t, l, "a")
		_ = lock.Context() // the hold's context must not keep the Lock alive
	}
	forget()
	kept := acquire(t, l, "kept")
	var leak snib.LeakedEvent
	for leak.Name == "" {
		runtime.GC()
		select {
		case leak = <-leaks:
		case <-time.After(10 * time.Millisecond): // the time of a collection is not known
		}
	}
	if leak.Name != "a" || !strings.Contains(string(leak.Stack), "TestLeakIsReportedAndReleased") {
		t.Errorf("leak of %q at\n%s", leak.Name, leak.Stack)
	}
	release(t, acquire(t, l, "a")) // waits for the release of the leaked lock
	release(t, kept)
}

func TestTraceAndLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		trace := traceAll(func(what string, e event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf("%s %s %v %v", what, e.Name, e.Waited+e.Held, e.Err))
		})
		store := new(memlock.Store)
		l := open(t, store.Open(), snib.Tracing(trace), snib.MaxHold(40*time.Second))
		lock := acquire(t, l, "a")
		time.Sleep(time.Second)
		release(t, lock)
		other := acquire(t, open(t, store.Open()), "a")
		_, err := l.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire", err, snib.ErrHeld)
		release(t, other)
		_ = acquire(t, l, "b")
		time.Sleep(40 * time.Second)
		synctest.Wait()
		want := []string{
			"started a 0s <nil>", "ended a 0s <nil>", "acquired a 0s <nil>", "released a 1s <nil>",
			"started a 0s <nil>", `ended a 0s snib: acquire "a" (memory): the lock is held`,
			"started b 0s <nil>", "ended b 0s <nil>", "acquired b 0s <nil>",
			"renewed b 0s <nil>", "renewed b 0s <nil>", "renewed b 0s <nil>", "renewed b 0s <nil>",
			"lost b 40s the lock was lost: MaxHold of 40s is over",
		}
		mu.Lock()
		defer mu.Unlock()
		if got, want := strings.Join(events, "\n"), strings.Join(want, "\n"); got != want {
			t.Errorf("told:\n%s\nwant:\n%s", got, want)
		}
	})
}

func TestInvalid(t *testing.T) {
	weak := newSpy(new(memlock.Store))
	weak.info = func(i driver.Info) driver.Info {
		return driver.Info{Backend: "weak", MinTTL: time.Second, MaxTTL: time.Minute}
	}
	tests := []struct {
		name string
		opt  snib.Option
		says string
	}{
		{"TTL", snib.TTL(-time.Second), "TTL: -1s is not positive"},
		{"ShortTTL", snib.TTL(time.Millisecond), "shorter than 1s"},
		{"LongTTL", snib.TTL(time.Hour), "longer than 1m0s"},
		{"MaxWait", snib.MaxWait(0), "MaxWait"},
		{"MaxHold", snib.MaxHold(-1), "MaxHold"},
		{"MinHold", snib.MinHold(-1), "MinHold"},
		{"LockDelay", snib.LockDelay(0), "LockDelay"},
		{"LongLockDelay", snib.LockDelay(time.Minute), "more than 1m0s"},
		{"ReleaseTimeout", snib.ReleaseTimeout(0), "ReleaseTimeout"},
		{"Owner", snib.Owner(""), "Owner"},
		{"Slots", snib.Slots(0), "Slots"},
		{"NoSlots", snib.Slots(2), "no semaphores"},
		{"Shared", snib.Shared(), "no read/write locks"},
		{"Fair", snib.Fair(), "order of arrival"},
		{"Fencing", snib.RequireFencing(snib.FencingClock), "clock required and none here"},
		{"Zero", snib.Option{}, "zero Option"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := snib.New(weak, tt.opt)
			wantErr(t, "New", err, snib.ErrInvalid)
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
			_, err = open(t, weak).With(tt.opt).Acquire(t.Context(), "a")
			wantErr(t, "With and Acquire", err, snib.ErrInvalid)
		})
	}
	_, err := snib.New(nil)
	wantErr(t, "New(nil)", err, snib.ErrInvalid)
	_, err = snib.New(memlock.New(), snib.Shared(), snib.Slots(2))
	wantErr(t, "Shared with Slots", err, snib.ErrInvalid)

	l := open(t, memlock.New())
	for _, name := range []string{"", "a\x00b", strings.Repeat("x", 513), "\xff"} {
		_, err := l.Acquire(t.Context(), name)
		wantErr(t, fmt.Sprintf("Acquire(%q)", name), err, snib.ErrInvalid)
	}
	_, err = l.AcquireAll(t.Context())
	wantErr(t, "AcquireAll of nothing", err, snib.ErrInvalid)
}

func TestDefaultTTLIsTheNearestPossible(t *testing.T) {
	d := newSpy(new(memlock.Store))
	d.info = func(i driver.Info) driver.Info { i.MaxTTL = 10 * time.Second; return i }
	var requested time.Duration
	d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		requested = req.TTL
		return send()
	}
	release(t, acquire(t, open(t, d), "a"))
	if requested != 10*time.Second {
		t.Errorf("TTL = %v, want 10s", requested)
	}
}

func TestHolderIsShown(t *testing.T) {
	store := new(memlock.Store)
	l := open(t, store.Open(), snib.Label("backup"))
	lock := acquire(t, l, "a")
	st, err := store.Open().Status(t.Context(), "a")
	wantErr(t, "Status", err, nil)
	host, _ := os.Hostname()
	want := driver.Holder{Host: host, PID: os.Getpid(), Label: "backup"}
	if len(st.Holders) != 1 || st.Holders[0].Holder != want {
		t.Errorf("Status = %+v, want holder %+v", st, want)
	}
	release(t, lock)
}

// The context ends before Lost is closed, so a goroutine woken by Lost finds the cause.
func TestContextEndsBeforeLost(t *testing.T) {
	tests := []struct {
		name string
		wait func(*snib.Lock) bool // reports the loss
	}{
		{"Waiting", func(l *snib.Lock) bool { return isClosed(l.Lost()) }},
		{"FirstLook", func(l *snib.Lock) bool { return l.Validity() == 0 && isClosed(l.Lost()) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := new(memlock.Store)
			l := open(t, store.Open(), snib.Reentrant())
			outer := acquire(t, l, "a")
			inner, err := l.Acquire(outer.Context(), "a")
			wantErr(t, "Acquire", err, nil)
			for _, lock := range []*snib.Lock{outer, inner} {
				for range 50_000 { // make the context's end slow
					_, cancel := context.WithCancel(lock.Context())
					defer cancel()
				}
			}
			broken := make(chan error, 1)
			// Break reports the loss before it returns.
			go func() { broken <- store.Open().Break(t.Context(), "a", outer.Owner(), outer.Token()) }()
			for !tt.wait(inner) {
				runtime.Gosched()
			}
			wantErr(t, "outer cause once Lost is closed", context.Cause(outer.Context()), snib.ErrLost)
			wantErr(t, "inner cause once Lost is closed", context.Cause(inner.Context()), snib.ErrLost)
			wantErr(t, "Break", <-broken, nil)
		})
	}
}
