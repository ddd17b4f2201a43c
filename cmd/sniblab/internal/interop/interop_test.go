package interop_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

const (
	// longTTL is a TTL that does not end during a test.
	longTTL = 30 * time.Second

	// shortTTL is a TTL that ends during a test. After expirySlack more it has certainly
	// ended by the server's clock. maxDelay is how late a waiter may be if it is woken by a
	// message or a timer, apart from what [slack] adds.
	shortTTL    = 2 * time.Second
	expirySlack = 500 * time.Millisecond
	maxDelay    = 2 * time.Second

	// maxPollDelay is how late a waiter may notice that a foreign client has
	// released. It polls every 200 ms.
	maxPollDelay = maxDelay
)

// slack returns how much later than on an idle machine an exchange with the server may end, if
// timers were late by this much meanwhile.
func slack(late time.Duration) time.Duration { return 10 * late }

// A fixture is a server with two kinds of clients.
type fixture struct {
	server *redistest.Node
	raw    *redis.Client
	theirs foreignLocker
}

// run runs all cases against a foreign client.
func run(t *testing.T, connect func(t *testing.T, addr string) foreignLocker) {
	w := newFixture(t)
	w.theirs = connect(t, w.server.Addr())
	for _, c := range []struct {
		name string
		run  func(t *testing.T, w fixture, name string)
	}{
		{"HeldThere", heldThere},
		{"HeldHere", heldHere},
		{"ExpiryThere", expiryThere},
		{"ExpiryHere", expiryHere},
		{"ReleaseThere", releaseThere},
		{"ReleaseHere", releaseHere},
		{"ExtensionThere", extensionThere},
		{"RenewalHere", renewalHere},
		{"StaleThere", staleThere},
		{"StaleHere", staleHere},
		{"HandOver", handOver},
		{"Inspection", inspection},
		{"Contention", contention},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, w, strings.ReplaceAll(t.Name(), "/", " "))
		})
	}
}

// newFixture starts a server that looks as if it had kept locks for a long time: otherwise it
// would grant nothing until it is older than the TTL.
func newFixture(t *testing.T) fixture {
	n := redistest.Single(t).Used()
	return fixture{server: n, raw: dial(t, n.Addr())}
}

// newLocker returns a new Locker with its own driver, as a separate process would
// have, and the driver.
func (w fixture) newLocker(t *testing.T, opts ...snib.Option) (*snib.Locker, *redislock.Driver) {
	t.Helper()
	d, err := redislock.Open(t.Context(), rueidis.ClientOption{InitAddress: []string{w.server.Addr()}})
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	locker, err := snib.New(d, append([]snib.Option{snib.TTL(longTTL)}, opts...)...)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	t.Cleanup(func() { locker.Close() })
	return locker, d
}

// takeForeign acquires a free lock with the foreign client.
func (w fixture) takeForeign(t *testing.T, name string, ttl time.Duration) hold {
	t.Helper()
	h, err := w.theirs.try(name, ttl)
	if err != nil {
		t.Fatalf("the foreign client can't take a lock that is free: %v", err)
	}
	return h
}

// wantRefusal checks that the foreign client can't acquire the lock.
func (w fixture) wantRefusal(t *testing.T, name, when string) {
	t.Helper()
	if _, err := w.theirs.try(name, longTTL); !errors.Is(err, errRefused) {
		t.Fatalf("the foreign client tries %s: %v, want it to be refused", when, err)
	}
}

func acquire(t *testing.T, l *snib.Locker, name string) *snib.Lock {
	t.Helper()
	lock, err := l.TryAcquire(t.Context(), name)
	if err != nil {
		t.Fatalf("TryAcquire of a lock that is free = %v", err)
	}
	return lock
}

func release(t *testing.T, lock *snib.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Errorf("Release = %v", err)
	}
}

// wantHeld checks that somebody else holds the lock for another low to high.
func wantHeld(t *testing.T, l *snib.Locker, name string, low, high time.Duration) {
	t.Helper()
	_, err := l.TryAcquire(t.Context(), name)
	var held *redislock.HeldError
	if !errors.Is(err, snib.ErrHeld) || !errors.As(err, &held) {
		t.Fatalf("TryAcquire = %v, want a HeldError", err)
	}
	if held.Left < low || held.Left > high {
		t.Errorf("HeldError = %+v, want %v to %v left", *held, low, high)
	}
}

// A pendingAcquire is a running Acquire.
type pendingAcquire struct {
	got     chan acquireResult
	machine func() time.Duration // stops to measure lateness
}

type acquireResult struct {
	lock *snib.Lock
	err  error
	at   time.Time
}

// startWaiting begins to wait for a lock that somebody else holds, and returns when
// the store shows the waiter, or when Acquire has returned.
func startWaiting(t *testing.T, l *snib.Locker, d *redislock.Driver, name string) pendingAcquire {
	t.Helper()
	before := waiters(t, d, name)
	w := pendingAcquire{make(chan acquireResult, 1), livetest.Lateness(t)}
	go func() {
		lock, err := l.Acquire(t.Context(), name)
		w.got <- acquireResult{lock, err, time.Now()}
	}()
	livetest.Await(t, "waiter", func() error {
		if n := waiters(t, d, name); n != before+1 && len(w.got) == 0 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	return w
}

func waiters(t *testing.T, d *redislock.Driver, name string) int {
	t.Helper()
	st, err := d.Status(t.Context(), name)
	if err != nil {
		t.Fatalf("Status = %v", err)
	}
	return len(st.Waiters)
}

// awaitGrant returns the lock, which must be granted between from and to, or somewhat later on a
// machine that is busy.
func (w pendingAcquire) awaitGrant(t *testing.T, from, to time.Time) *snib.Lock {
	t.Helper()
	select {
	case a := <-w.got:
		late := w.machine()
		if a.err != nil {
			t.Fatalf("Acquire = %v", a.err)
		}
		if a.at.Before(from) || a.at.After(to.Add(slack(late))) {
			t.Errorf("Acquire returned %v after the lock was free, on a machine that was late by %v, want 0 to %v", a.at.Sub(from), late, to.Sub(from))
		}
		return a.lock
	case <-time.After(time.Until(to) + livetest.Patience):
		t.Fatal("Acquire does not return")
		return nil
	}
}

// wantLost checks that a holder learns at its next renewal that it has lost the lock.
func wantLost(t *testing.T, lock *snib.Lock, ttl time.Duration, what string) {
	t.Helper()
	began, machine := time.Now(), livetest.Lateness(t)
	select {
	case <-lock.Lost():
	case <-time.After(ttl + livetest.Patience):
		t.Fatalf("we hold a lock %s", what)
	}
	if took, late := time.Since(began), machine(); took > ttl+maxDelay+slack(late) {
		t.Errorf("for %v, on a machine that was late by %v, we hold a lock %s", took, late, what)
	}
}

// wantNone checks that Acquire does not return for a while.
func (w pendingAcquire) wantNone(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case a := <-w.got:
		t.Fatalf("Acquire = %v, want it to wait: somebody else holds the lock", a.err)
	case <-time.After(d):
	}
}

func heldThere(t *testing.T, w fixture, name string) {
	locker, _ := w.newLocker(t)
	h := w.takeForeign(t, name, longTTL)
	wantHeld(t, locker, name, longTTL/2, longTTL)
	wantHeld(t, locker.With(snib.Shared()), name, longTTL/2, longTTL)
	if _, err := locker.With(snib.Slots(3)).TryAcquire(t.Context(), name); !errors.Is(err, snib.ErrKind) {
		t.Errorf("TryAcquire of a semaphore = %v, want ErrKind", err)
	}
	if err := h.release(); err != nil {
		t.Fatalf("the foreign client can't release: %v", err)
	}
	release(t, acquire(t, locker, name))
}

func heldHere(t *testing.T, w fixture, name string) {
	for kind, opts := range map[string][]snib.Option{
		"exclusive": nil,
		"shared":    {snib.Shared()},
		"slots":     {snib.Slots(3)},
	} {
		name := name + kind
		locker, _ := w.newLocker(t, opts...)
		lock := acquire(t, locker, name)
		w.wantRefusal(t, name, "while it is held here, "+kind)
		release(t, lock)
		if err := w.takeForeign(t, name, longTTL).release(); err != nil {
			t.Errorf("the foreign client can't release: %v", err)
		}
	}

	locker, _ := w.newLocker(t, snib.MinHold(shortTTL))
	start := time.Now()
	release(t, acquire(t, locker, name))
	w.wantRefusal(t, name, "before the least time to hold is over")
	// Then it has ended by the server's clock.
	time.Sleep(time.Until(start.Add(shortTTL + expirySlack)))
	w.takeForeign(t, name, longTTL)
}

func expiryThere(t *testing.T, w fixture, name string) {
	locker, d := w.newLocker(t)
	sent := time.Now()
	w.takeForeign(t, name, shortTTL)
	got := time.Now()
	lock := startWaiting(t, locker, d, name).awaitGrant(t, sent.Add(shortTTL-10*time.Millisecond),
		got.Add(shortTTL+maxDelay))
	w.wantRefusal(t, name, "after its own lock has lapsed")
	release(t, lock)
}

func expiryHere(t *testing.T, w fixture, name string) {
	locker, d := w.newLocker(t)
	info := d.Info()
	l := w.shortLease(t, d, name)
	sent, machine := time.Now(), livetest.Lateness(t)
	ctx, cancel := context.WithTimeout(t.Context(), longTTL)
	defer cancel()
	h, err := w.theirs.wait(ctx, name, longTTL)
	if took, late := time.Since(sent), machine(); err != nil || took > shortTTL+maxDelay+slack(late) {
		t.Fatalf("the foreign client waits for our lease to lapse: %v after %v, on a machine that was late by %v, want the lock after %v", err, took, late, shortTTL)
	}
	if r := d.Renew(t.Context(), []driver.Lease{l})[0]; !errors.Is(r.Err, driver.ErrLost) {
		t.Errorf("Renew of a lease that a stranger has by now = %v, want ErrLost (%s)", r.Err, info.Backend)
	}
	wantHeld(t, locker, name, longTTL/2, longTTL)
	if err := h.release(); err != nil {
		t.Errorf("the foreign client can't release: %v", err)
	}
}

// shortLease acquires a lease that lapses, and that the foreign client is refused before. If the
// machine is so slow that the client tries too late, both try again.
func (w fixture) shortLease(t *testing.T, d driver.Driver, name string) driver.Lease {
	t.Helper()
	for attempt := 1; ; attempt++ {
		began := time.Now()
		l, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: fmt.Sprint("one that dies ", attempt), TTL: shortTTL})
		if err != nil {
			t.Fatalf("Acquire = %v", err)
		}
		h, err := w.theirs.try(name, longTTL)
		if errors.Is(err, errRefused) {
			return l
		}
		if err != nil || time.Since(began) < shortTTL {
			t.Fatalf("the foreign client tries before our lease has lapsed: %v, want it to be refused", err)
		}
		if err := h.release(); err != nil {
			t.Fatalf("the foreign client can't release: %v", err)
		}
	}
}

func releaseThere(t *testing.T, w fixture, name string) {
	first, d := w.newLocker(t)
	second, _ := w.newLocker(t)
	h := w.takeForeign(t, name, longTTL)
	a := startWaiting(t, first, d, name)
	b := startWaiting(t, second, d, name)
	a.wantNone(t, 300*time.Millisecond)
	freed := time.Now()
	if err := h.release(); err != nil {
		t.Fatalf("the foreign client can't release: %v", err)
	}
	lock := a.awaitGrant(t, freed, freed.Add(maxPollDelay))
	b.wantNone(t, 300*time.Millisecond)
	freed = time.Now()
	release(t, lock)
	release(t, b.awaitGrant(t, freed, freed.Add(maxDelay)))
}

func releaseHere(t *testing.T, w fixture, name string) {
	// The program of the foreign client may have to start yet, which takes seconds on a busy machine.
	if err := w.takeForeign(t, name+" before", longTTL).release(); err != nil {
		t.Fatalf("the foreign client can't release: %v", err)
	}
	locker, _ := w.newLocker(t)
	lock := acquire(t, locker, name)
	ctx, cancel := context.WithTimeout(t.Context(), longTTL)
	defer cancel()
	machine := livetest.Lateness(t)
	var freed time.Time
	released := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() {
		defer close(released)
		freed = time.Now()
		lock.Release()
	})
	h, err := w.theirs.wait(ctx, name, longTTL)
	granted := time.Now()
	<-released // until then, this process says that it has the lock itself
	if took, late := granted.Sub(freed), machine(); err != nil || took < 0 || took > maxDelay+slack(late) {
		t.Fatalf("the foreign client waits for our release: %v, %v after it, on a machine that was late by %v", err, took, late)
	}
	wantHeld(t, locker, name, longTTL/2, longTTL)
	if err := h.release(); err != nil {
		t.Errorf("the foreign client can't release: %v", err)
	}
}

// extensionThere has a foreign client extend a lock that we wait for. It repeats that with a longer
// TTL if the machine was too busy to extend in time.
func extensionThere(t *testing.T, w fixture, name string) {
	for ttl := shortTTL; !extendThere(t, w, fmt.Sprint(name, " ", ttl), ttl); ttl *= 2 {
		if ttl > longTTL {
			t.Fatal("the machine is too slow")
		}
	}
}

// extendThere reports whether the foreign client extended in time.
func extendThere(t *testing.T, w fixture, name string, ttl time.Duration) (inTime bool) {
	t.Helper()
	locker, d := w.newLocker(t)
	h := w.takeForeign(t, name, ttl)
	began := time.Now()
	a := startWaiting(t, locker, d, name)
	if left := time.Until(began.Add(ttl / 2)); left > 0 {
		a.wantNone(t, left)
	}
	if err := h.extend(longTTL); err != nil {
		if time.Since(began) > ttl-expirySlack {
			release(t, a.awaitGrant(t, began, began.Add(ttl+maxDelay)))
			return false
		}
		t.Fatalf("the foreign client can't extend: %v", err)
	}
	a.wantNone(t, ttl+expirySlack)
	other, _ := w.newLocker(t)
	wantHeld(t, other, name, longTTL/2, longTTL)
	freed := time.Now()
	if err := h.release(); err != nil {
		t.Fatalf("the foreign client can't release: %v", err)
	}
	release(t, a.awaitGrant(t, freed, freed.Add(maxPollDelay)))
	return true
}

// renewalHere renews a lock that a foreign client tries to get. It repeats that with a longer TTL
// if the machine was too busy to renew in time.
func renewalHere(t *testing.T, w fixture, name string) {
	for ttl := 1200 * time.Millisecond; ; ttl *= 2 {
		machine := livetest.Lateness(t)
		err := renewHere(t, w, fmt.Sprint(name, " ", ttl), ttl)
		late := machine()
		if err == nil {
			return
		}
		if slack(late) < ttl || ttl > longTTL {
			t.Fatalf("with a TTL of %v, on a machine that was late by %v: %v", ttl, late, err)
		}
	}
}

// renewHere returns an error if the foreign client gets the lock, or if the hold ends.
func renewHere(t *testing.T, w fixture, name string, ttl time.Duration) error {
	t.Helper()
	locker, _ := w.newLocker(t, snib.TTL(ttl))
	lock := acquire(t, locker, name)
	// Other clients would try at about this pace.
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := w.theirs.try(name, longTTL); !errors.Is(err, errRefused) {
			return fmt.Errorf("the foreign client tries while we renew: %w, want it to be refused", err)
		}
	}
	if err := lock.Context().Err(); err != nil {
		return fmt.Errorf("the hold has ended: %w", context.Cause(lock.Context()))
	}
	release(t, lock)
	w.takeForeign(t, name, longTTL)
	return nil
}

// staleThere has a foreign client release and extend a lock that it has lost.
func staleThere(t *testing.T, w fixture, name string) {
	locker, _ := w.newLocker(t)
	h := w.takeForeign(t, name, shortTTL)
	w.raw.Del(t.Context(), name) // as if somebody broke it
	lock := acquire(t, locker, name)
	if err := h.extend(longTTL); err == nil {
		t.Error("the foreign client has extended our lock")
	}
	if err := h.release(); err == nil {
		t.Error("the foreign client has released our lock")
	}
	w.wantRefusal(t, name, "after it released in vain")
	if got, want := w.raw.Get(t.Context(), name).Val(), strconv.Quote(lock.ID()); !strings.Contains(got, want) {
		t.Errorf("the key has the value %q, want a grant of our owner %s", got, want)
	}
	release(t, lock)
}

// staleHere has snib release and renew a lock that it has lost.
func staleHere(t *testing.T, w fixture, name string) {
	const ttl = 600 * time.Millisecond
	locker, d := w.newLocker(t, snib.TTL(ttl))
	old, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: "one of long ago", TTL: longTTL})
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	w.raw.Del(t.Context(), name)
	lock := acquire(t, locker, name)
	w.raw.Del(t.Context(), name)
	h := w.takeForeign(t, name, longTTL)
	wantLost(t, lock, ttl, "that is somebody else's")
	if err := lock.Release(); !errors.Is(err, snib.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	// Release of a lease must ask the store, unlike Lock.Release.
	if err := old.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release of a lease = %v, want ErrLost", err)
	}
	if err := d.Break(t.Context(), name, lock.ID()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Break of what was lost = %v, want ErrLost", err)
	}
	if got := w.raw.Get(t.Context(), name).Val(); got != h.value() {
		t.Errorf("the key has the value %q, want %q: the lock is the foreign client's", got, h.value())
	}
	if left := w.raw.PTTL(t.Context(), name).Val(); left < longTTL/2 {
		t.Errorf("the key lives for another %v, want %v: the lock is the foreign client's", left, longTTL)
	}
	if err := h.release(); err != nil {
		t.Errorf("the foreign client can't release: %v", err)
	}
}

// handOver hands a lock back and forth between two of our processes while a foreign client tries
// to get it, until there were enough hand-overs and tries. The foreign client never gets it.
func handOver(t *testing.T, w fixture, name string) {
	var lockers [2]*snib.Locker
	var d *redislock.Driver
	for i := range lockers {
		lockers[i], d = w.newLocker(t)
	}
	lock := acquire(t, lockers[0], name)
	ctx, cancel := context.WithCancel(t.Context())
	const least = 50 // tries, and hand-overs
	var tries atomic.Int64
	var intruders sync.WaitGroup
	intruders.Go(func() {
		for ; ctx.Err() == nil; tries.Add(1) {
			if _, err := w.theirs.try(name, longTTL); !errors.Is(err, errRefused) {
				t.Errorf("the foreign client tries while we hand over: %v, want it to be refused", err)
				cancel()
			}
		}
	})
	for i := 0; ctx.Err() == nil && (i < least || tries.Load() < least); i++ {
		next := startWaiting(t, lockers[(i+1)%2], d, name)
		freed := time.Now()
		release(t, lock)
		lock = next.awaitGrant(t, freed, freed.Add(maxDelay))
	}
	cancel()
	intruders.Wait()
	release(t, lock)
}

func inspection(t *testing.T, w fixture, name string) {
	locker, d := w.newLocker(t)
	ctx := t.Context()
	h := w.takeForeign(t, name, longTTL)
	st, err := d.Status(ctx, name)
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v, want one holder", st, err)
	}
	got := st.Holders[0]
	if got.ID != h.value() || got.Token != 0 || got.Left < longTTL/2 || got.Left > longTTL || st.Shared || st.Slots != 0 {
		t.Errorf("Status = %+v, want the owner %q with token 0 and about %v left", st, h.value(), longTTL)
	}
	err = d.List(ctx, "", func(st driver.Status) bool {
		if st.Name == name {
			t.Errorf("List shows %+v, want nothing of strangers", st)
		}
		return true
	})
	if err != nil {
		t.Errorf("List = %v", err)
	}
	a := startWaiting(t, locker, d, name)
	for _, wrong := range []string{h.value() + "x", ""} {
		if err := d.Break(ctx, name, wrong); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Break of %q = %v, want ErrLost", wrong, err)
		}
	}
	a.wantNone(t, 300*time.Millisecond)
	freed := time.Now()
	if err := d.Break(ctx, name, h.value()); err != nil {
		t.Fatalf("Break = %v", err)
	}
	lock := a.awaitGrant(t, freed, freed.Add(maxDelay))
	if err := h.release(); err == nil {
		t.Error("the foreign client has released what was broken")
	}
	release(t, lock)
}

// contention has several clients of both kinds contend for a lock, and checks at the
// server that only one holds it at a time.
func contention(t *testing.T, w fixture, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const least = 5 // rounds of each kind
	var rounds [2]atomic.Int64
	end := time.Now().Add(2 * time.Second)
	goOn := func() bool {
		return ctx.Err() == nil && (time.Now().Before(end) || rounds[0].Load() < least || rounds[1].Load() < least)
	}
	critical := func(kind int, who string) {
		if !w.raw.SetNX(ctx, name+" inside", who, longTTL).Val() {
			t.Errorf("%s is inside, and %q as well", who, w.raw.Get(ctx, name+" inside").Val())
		}
		time.Sleep(rand.N(2 * time.Millisecond)) // hold the lock for a while
		w.raw.Del(ctx, name+" inside")
		rounds[kind].Add(1)
	}
	var all sync.WaitGroup
	for i := range 3 {
		locker, _ := w.newLocker(t)
		all.Go(func() {
			for goOn() {
				lock, err := locker.Acquire(ctx, name)
				if err != nil {
					t.Errorf("Acquire = %v", err)
					return
				}
				critical(0, fmt.Sprint("one of ours, ", i))
				if err := lock.Release(); err != nil {
					t.Errorf("Release = %v", err)
				}
				time.Sleep(rand.N(40 * time.Millisecond)) // so that all get the lock
			}
		})
		all.Go(func() {
			for goOn() {
				h, err := w.theirs.wait(ctx, name, longTTL)
				if err != nil {
					t.Errorf("the foreign client waits: %v", err)
					return
				}
				critical(1, fmt.Sprint("a stranger, ", i))
				if err := h.release(); err != nil {
					t.Errorf("the foreign client can't release: %v", err)
				}
				time.Sleep(rand.N(40 * time.Millisecond)) // as above
			}
		})
	}
	all.Wait()
	t.Logf("%d times we, %d times they", rounds[0].Load(), rounds[1].Load())
	if rounds[0].Load() < least || rounds[1].Load() < least {
		t.Errorf("we had the lock %d times, they %d times; want some of each", rounds[0].Load(), rounds[1].Load())
	}
}

// TestNoTTL tests a key without a TTL, as redis-py creates by default, and as
// clients do that forget PX.
func TestNoTTL(t *testing.T) {
	w := newFixture(t)
	locker, d := w.newLocker(t)
	ctx := t.Context()
	const name, value = "forever", "5f0c6f2a"
	w.server.Must("SET", name, value, "NX")
	wantHeld(t, locker, name, -time.Hour, -1)
	if _, err := locker.TryAcquire(ctx, name); err == nil || !strings.Contains(err.Error(), "never ends") {
		t.Errorf("TryAcquire = %v, want it to say that the key never ends", err)
	}
	st, err := d.Status(ctx, name)
	if err != nil || len(st.Holders) != 1 || st.Holders[0].ID != value || st.Holders[0].Left < 365*24*time.Hour {
		t.Errorf("Status = %+v, %v, want the holder %q for years", st, err, value)
	}
	for _, free := range []struct {
		name string
		do   func() error
	}{
		{"Del", func() error { return w.raw.Del(ctx, name).Err() }},
		{"Break", func() error { return d.Break(ctx, name, value) }},
		{"Expire", func() error { return w.raw.PExpire(ctx, name, 50*time.Millisecond).Err() }},
	} {
		a := startWaiting(t, locker, d, name)
		a.wantNone(t, 300*time.Millisecond)
		freed := time.Now()
		if err := free.do(); err != nil {
			t.Fatalf("%s = %v", free.name, err)
		}
		release(t, a.awaitGrant(t, freed, freed.Add(maxPollDelay)))
		w.server.Must("SET", name, value, "NX")
	}
	if left := w.raw.PTTL(ctx, name).Val(); left != -1 {
		t.Errorf("the key lives for another %v, want no end: it is not ours", left)
	}
}

// TestOtherTypes tests names whose keys are of another type.
func TestOtherTypes(t *testing.T) {
	w := newFixture(t)
	for typ, command := range map[string][]any{
		"hash":   {"HSET", "hash", "3e1f7f50:42", 1},
		"list":   {"RPUSH", "list", "a"},
		"set":    {"SADD", "set", "a"},
		"zset":   {"ZADD", "zset", 1, "a"},
		"stream": {"XADD", "stream", "*", "a", "b"},
	} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			locker, d := w.newLocker(t)
			ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
			defer cancel()
			w.server.Must(command...)
			before := w.raw.Dump(ctx, typ).Val()
			for how, opts := range map[string][]snib.Option{
				"exclusive": nil, "shared": {snib.Shared()}, "slots": {snib.Slots(3)},
			} {
				l := locker.With(opts...)
				for verb, f := range map[string]func(context.Context, string) (*snib.Lock, error){
					"TryAcquire": l.TryAcquire, "Acquire": l.Acquire,
				} {
					if _, err := f(ctx, typ); !errors.Is(err, snib.ErrKind) || !strings.Contains(err.Error(), "in use as a "+typ) {
						t.Errorf("%s, %s = %v, want ErrKind, and that it is a %s", verb, how, err, typ)
					}
				}
			}
			// The lock is not free: nobody can acquire it.
			st, err := d.Status(ctx, typ)
			if err != nil || len(st.Holders) != 1 || st.Holders[0].ID != "" || !strings.HasSuffix(st.Holders[0].Foreign, "of unknown use") {
				t.Errorf("Status = %+v, %v, want a holder of unknown use", st, err)
			}
			if err := d.Break(ctx, typ, "a"); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Break = %v, want ErrLost", err)
			}
			if after := w.raw.Dump(ctx, typ).Val(); after != before {
				t.Errorf("the %s has changed", typ)
			}
		})
	}
}

// TestTypeWhileHeld overwrites the key of a lock that snib holds and waits for.
func TestTypeWhileHeld(t *testing.T) {
	const ttl = 6 * time.Second
	w := newFixture(t)
	locker, _ := w.newLocker(t, snib.TTL(ttl))
	other, d := w.newLocker(t)
	lock := acquire(t, locker, "lock")
	a := startWaiting(t, other, d, "lock")
	// One script, so that nobody gets the lock in between.
	w.server.Must("EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a', 'b')", 1, "lock")
	wantLost(t, lock, ttl, "whose key is something else")
	if err := lock.Release(); !errors.Is(err, snib.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	select {
	case got := <-a.got:
		if !errors.Is(got.err, snib.ErrKind) || !strings.Contains(got.err.Error(), "hash") {
			t.Errorf("Acquire that waited = %v, want ErrKind, and that it is a hash", got.err)
		}
	case <-time.After(livetest.Patience):
		t.Error("Acquire waits for a hash")
	}
	a.machine()
	if got := w.server.Must("HGET", "lock", "a"); got != "b" {
		t.Errorf("the hash has %v, want what was there", got)
	}
}
