package interop_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// long is a TTL that does not end in a test.
	long = 30 * time.Second

	// short is one that does. After slack it is over by the server's clock, too; late is how late whoever waits for what is told or timed
	// may be, on a machine that is busy.
	short = 2 * time.Second
	slack = 500 * time.Millisecond
	late  = 2 * time.Second

	// polled is how late a waiter may notice that a stranger has released. It looks each 200 ms.
	polled = late
)

// A world is one server and two kinds of locks on it.
type world struct {
	server *redistest.Node
	raw    *redis.Client
	theirs foreign
}

// run runs all cases against a foreign client.
func run(t *testing.T, connect func(t *testing.T, addr string) foreign) {
	w := newWorld(t)
	w.theirs = connect(t, w.server.Addr())
	for _, c := range []struct {
		name string
		run  func(t *testing.T, w world, name string)
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

// newWorld starts a server that has kept locks since long ago: else it would grant nothing until it is older than the TTL.
func newWorld(t *testing.T) world {
	n := redistest.Single(t)
	info, _ := n.Must("INFO", "server").(string)
	_, rest, _ := strings.Cut(info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	n.Must("HSET", "snib.m", "r", id, "c", 0, "x", 0)
	return world{server: n, raw: dial(t, n.Addr())}
}

// ours returns a Locker as a process of its own has it, and its driver.
func (w world) ours(t *testing.T, opts ...snib.Option) (*snib.Locker, *redislock.Driver) {
	t.Helper()
	d, err := redislock.Open(rueidis.ClientOption{InitAddress: []string{w.server.Addr()}})
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	locker, err := snib.New(d, append([]snib.Option{snib.TTL(long)}, opts...)...)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	t.Cleanup(func() { locker.Close() })
	return locker, d
}

// take takes a lock for the foreign client, which is free.
func (w world) take(t *testing.T, name string, ttl time.Duration) hold {
	t.Helper()
	h, err := w.theirs.try(name, ttl)
	if err != nil {
		t.Fatalf("the foreign client can't take a lock that is free: %v", err)
	}
	return h
}

// wantRefusal checks that the foreign client can't have the lock.
func (w world) wantRefusal(t *testing.T, name, when string) {
	t.Helper()
	if _, err := w.theirs.try(name, long); !errors.Is(err, errRefused) {
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

// wantHeld checks that a lock is held by somebody else for as long as low to high.
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

// A waiting is an Acquire under way.
type waiting struct {
	got chan acquired
}

type acquired struct {
	lock *snib.Lock
	err  error
	at   time.Time
}

// wait begins to wait for a lock that somebody else holds, and returns when the store knows.
func wait(t *testing.T, l *snib.Locker, d *redislock.Driver, name string) waiting {
	t.Helper()
	before := waiters(t, d, name)
	w := waiting{make(chan acquired, 1)}
	go func() {
		lock, err := l.Acquire(t.Context(), name)
		w.got <- acquired{lock, err, time.Now()}
	}()
	livetest.Await(t, "waiter", func() error {
		if n := waiters(t, d, name); n != before+1 {
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

// granted returns the lock, which must come between from and to.
func (w waiting) granted(t *testing.T, from, to time.Time) *snib.Lock {
	t.Helper()
	select {
	case a := <-w.got:
		if a.err != nil {
			t.Fatalf("Acquire = %v", a.err)
		}
		if a.at.Before(from) || a.at.After(to) {
			t.Errorf("Acquire returned %v after the lock was free, want 0 to %v", a.at.Sub(from), to.Sub(from))
		}
		return a.lock
	case <-time.After(time.Until(to) + livetest.Patience):
		t.Fatal("Acquire does not return")
		return nil
	}
}

// wantNone checks that Acquire does not return for a while.
func (w waiting) wantNone(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case a := <-w.got:
		t.Fatalf("Acquire = %v, want it to wait: somebody else holds the lock", a.err)
	case <-time.After(d):
	}
}

func heldThere(t *testing.T, w world, name string) {
	locker, _ := w.ours(t)
	h := w.take(t, name, long)
	wantHeld(t, locker, name, long-5*time.Second, long)
	wantHeld(t, locker.With(snib.Shared()), name, long-5*time.Second, long)
	if _, err := locker.With(snib.Slots(3)).TryAcquire(t.Context(), name); !errors.Is(err, snib.ErrKind) {
		t.Errorf("TryAcquire of a semaphore = %v, want ErrKind", err)
	}
	if err := h.release(); err != nil {
		t.Fatalf("the foreign client can't release: %v", err)
	}
	release(t, acquire(t, locker, name))
}

func heldHere(t *testing.T, w world, name string) {
	for kind, opts := range map[string][]snib.Option{
		"exclusive": nil,
		"shared":    {snib.Shared()},
		"slots":     {snib.Slots(3)},
	} {
		name := name + kind
		locker, _ := w.ours(t, opts...)
		lock := acquire(t, locker, name)
		w.wantRefusal(t, name, "while it is held here, "+kind)
		release(t, lock)
		if err := w.take(t, name, long).release(); err != nil {
			t.Errorf("the foreign client can't release: %v", err)
		}
	}

	locker, _ := w.ours(t, snib.MinHold(short))
	start := time.Now()
	release(t, acquire(t, locker, name))
	w.wantRefusal(t, name, "before the least time to hold is over")
	time.Sleep(time.Until(start.Add(short + slack))) // when it is over, by the server's clock
	w.take(t, name, long)
}

func expiryThere(t *testing.T, w world, name string) {
	locker, d := w.ours(t)
	sent := time.Now()
	w.take(t, name, short)
	got := time.Now()
	lock := wait(t, locker, d, name).granted(t, sent.Add(short-10*time.Millisecond), got.Add(short+late))
	w.wantRefusal(t, name, "after its own lock has lapsed")
	release(t, lock)
}

func expiryHere(t *testing.T, w world, name string) {
	locker, d := w.ours(t)
	info := d.Info()
	l, err := d.Acquire(t.Context(), driver.Request{Name: name, Owner: "one that dies", TTL: short})
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	w.wantRefusal(t, name, "before our lease has lapsed")
	sent := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	h, err := w.theirs.wait(ctx, name, long)
	if took := time.Since(sent); err != nil || took > short+late {
		t.Fatalf("the foreign client waits for our lease to lapse: %v after %v, want the lock after %v", err, took, short)
	}
	if r := d.Renew(t.Context(), []driver.Lease{l})[0]; !errors.Is(r.Err, driver.ErrLost) {
		t.Errorf("Renew of a lease that a stranger has by now = %v, want ErrLost (%s)", r.Err, info.Backend)
	}
	wantHeld(t, locker, name, long-5*time.Second, long)
	if err := h.release(); err != nil {
		t.Errorf("the foreign client can't release: %v", err)
	}
}

func releaseThere(t *testing.T, w world, name string) {
	first, d := w.ours(t)
	second, _ := w.ours(t)
	h := w.take(t, name, long)
	a := wait(t, first, d, name)
	b := wait(t, second, d, name)
	a.wantNone(t, 300*time.Millisecond)
	freed := time.Now()
	if err := h.release(); err != nil {
		t.Fatalf("the foreign client can't release: %v", err)
	}
	lock := a.granted(t, freed, freed.Add(polled))
	b.wantNone(t, 300*time.Millisecond)
	freed = time.Now()
	release(t, lock)
	release(t, b.granted(t, freed, freed.Add(late)))
}

func releaseHere(t *testing.T, w world, name string) {
	locker, _ := w.ours(t)
	lock := acquire(t, locker, name)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var freed atomic.Int64
	time.AfterFunc(300*time.Millisecond, func() {
		freed.Store(time.Now().UnixNano())
		lock.Release()
	})
	h, err := w.theirs.wait(ctx, name, long)
	if took := time.Since(time.Unix(0, freed.Load())); err != nil || took > late {
		t.Fatalf("the foreign client waits for our release: %v, %v after it", err, took)
	}
	wantHeld(t, locker, name, long-5*time.Second, long)
	if err := h.release(); err != nil {
		t.Errorf("the foreign client can't release: %v", err)
	}
}

func extensionThere(t *testing.T, w world, name string) {
	locker, d := w.ours(t)
	h := w.take(t, name, short)
	began := time.Now()
	a := wait(t, locker, d, name)
	a.wantNone(t, time.Until(began.Add(short/2)))
	if err := h.extend(long); err != nil {
		t.Fatalf("the foreign client can't extend: %v", err)
	}
	a.wantNone(t, short+slack)
	other, _ := w.ours(t)
	wantHeld(t, other, name, long-5*time.Second, long)
	freed := time.Now()
	if err := h.release(); err != nil {
		t.Fatalf("the foreign client can't release: %v", err)
	}
	release(t, a.granted(t, freed, freed.Add(polled)))
}

func renewalHere(t *testing.T, w world, name string) {
	const ttl = 1200 * time.Millisecond
	locker, _ := w.ours(t, snib.TTL(ttl))
	lock := acquire(t, locker, name)
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // as others come and go
		w.wantRefusal(t, name, "while we renew")
	}
	if err := lock.Context().Err(); err != nil {
		t.Fatalf("the hold has ended: %v", context.Cause(lock.Context()))
	}
	release(t, lock)
	w.take(t, name, long)
}

// staleThere has a foreign client release and extend what was its own once.
func staleThere(t *testing.T, w world, name string) {
	locker, _ := w.ours(t)
	h := w.take(t, name, short)
	w.raw.Del(t.Context(), name) // somebody broke it
	lock := acquire(t, locker, name)
	if err := h.extend(long); err == nil {
		t.Error("the foreign client has extended our lock")
	}
	if err := h.release(); err == nil {
		t.Error("the foreign client has released our lock")
	}
	w.wantRefusal(t, name, "after it released in vain")
	if got := w.raw.Get(t.Context(), name).Val(); got != lock.Owner() {
		t.Errorf("the key has the value %q, want our owner %q", got, lock.Owner())
	}
	release(t, lock)
}

// staleHere has us release and renew what was our own once.
func staleHere(t *testing.T, w world, name string) {
	const ttl = 600 * time.Millisecond
	locker, d := w.ours(t, snib.TTL(ttl))
	old, err := d.Acquire(t.Context(), driver.Request{Name: name, Owner: "one of long ago", TTL: long})
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	w.raw.Del(t.Context(), name)
	lock := acquire(t, locker, name)
	w.raw.Del(t.Context(), name)
	h := w.take(t, name, long)
	select {
	case <-lock.Lost(): // by its next renewal
	case <-time.After(ttl + late):
		t.Error("we hold a lock that is somebody else's")
	}
	if err := lock.Release(); !errors.Is(err, snib.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	if err := old.Release(t.Context()); !errors.Is(err, driver.ErrLost) { // which asks the store, as Release needs not
		t.Errorf("Release of a lease = %v, want ErrLost", err)
	}
	if err := d.Break(t.Context(), name, lock.Owner(), lock.Token()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Break of what was lost = %v, want ErrLost", err)
	}
	if got := w.raw.Get(t.Context(), name).Val(); got != h.value() {
		t.Errorf("the key has the value %q, want %q: the lock is the foreign client's", got, h.value())
	}
	if left := w.raw.PTTL(t.Context(), name).Val(); left < long-5*time.Second {
		t.Errorf("the key lives for another %v, want %v: the lock is the foreign client's", left, long)
	}
	if err := h.release(); err != nil {
		t.Errorf("the foreign client can't release: %v", err)
	}
}

// handOver hands a lock to and fro between two of our processes. There is no moment for others in between.
func handOver(t *testing.T, w world, name string) {
	var lockers [2]*snib.Locker
	var d *redislock.Driver
	for i := range lockers {
		lockers[i], d = w.ours(t)
	}
	lock := acquire(t, lockers[0], name)
	ctx, cancel := context.WithCancel(t.Context())
	var tries int
	var intruders sync.WaitGroup
	intruders.Go(func() {
		for ; ctx.Err() == nil; tries++ {
			if _, err := w.theirs.try(name, long); !errors.Is(err, errRefused) {
				t.Errorf("the foreign client tries while we hand over: %v, want it to be refused", err)
				return
			}
		}
	})
	for i := range 50 {
		next := wait(t, lockers[(i+1)%2], d, name)
		freed := time.Now()
		release(t, lock)
		lock = next.granted(t, freed, freed.Add(late))
	}
	cancel()
	intruders.Wait()
	if tries < 50 {
		t.Errorf("%d tries, want more", tries)
	}
	release(t, lock)
}

func inspection(t *testing.T, w world, name string) {
	locker, d := w.ours(t)
	ctx := t.Context()
	h := w.take(t, name, long)
	st, err := d.Status(ctx, name)
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v, want one holder", st, err)
	}
	got := st.Holders[0]
	if got.Owner != h.value() || got.Token != 0 || got.Left < long-5*time.Second || got.Left > long || st.Shared || st.Slots != 0 {
		t.Errorf("Status = %+v, want the owner %q with token 0 and about %v left", st, h.value(), long)
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
	a := wait(t, locker, d, name)
	for _, wrong := range []struct {
		owner string
		token uint64
	}{{h.value() + "x", 0}, {h.value(), 1}, {"", 0}} {
		if err := d.Break(ctx, name, wrong.owner, wrong.token); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Break of %q with token %d = %v, want ErrLost", wrong.owner, wrong.token, err)
		}
	}
	a.wantNone(t, 300*time.Millisecond)
	freed := time.Now()
	if err := d.Break(ctx, name, h.value(), 0); err != nil {
		t.Fatalf("Break = %v", err)
	}
	lock := a.granted(t, freed, freed.Add(late))
	if err := h.release(); err == nil {
		t.Error("the foreign client has released what was broken")
	}
	release(t, lock)
}

// contention has many of both kinds take a lock, and checks at the server that one at a time has it.
func contention(t *testing.T, w world, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	end := time.Now().Add(2 * time.Second)
	var rounds [2]atomic.Int64
	critical := func(kind int, who string) {
		if !w.raw.SetNX(ctx, name+" inside", who, long).Val() {
			t.Errorf("%s is inside, and %q as well", who, w.raw.Get(ctx, name+" inside").Val())
		}
		time.Sleep(rand.N(2 * time.Millisecond)) // some time inside
		w.raw.Del(ctx, name+" inside")
		rounds[kind].Add(1)
	}
	var all sync.WaitGroup
	for i := range 3 {
		locker, _ := w.ours(t)
		all.Go(func() {
			for time.Now().Before(end) {
				lock, err := locker.Acquire(ctx, name)
				if err != nil {
					t.Errorf("Acquire = %v", err)
					return
				}
				critical(0, fmt.Sprint("one of ours, ", i))
				if err := lock.Release(); err != nil {
					t.Errorf("Release = %v", err)
				}
				time.Sleep(rand.N(40 * time.Millisecond)) // so that all have their chance
			}
		})
		all.Go(func() {
			for time.Now().Before(end) {
				h, err := w.theirs.wait(ctx, name, long)
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
	if rounds[0].Load() < 5 || rounds[1].Load() < 5 {
		t.Errorf("we had the lock %d times, they %d times; want some of each", rounds[0].Load(), rounds[1].Load())
	}
}

// TestNoTTL is about a key without an end, which redis-py makes by default, and who forgets the PX.
func TestNoTTL(t *testing.T) {
	w := newWorld(t)
	locker, d := w.ours(t)
	ctx := t.Context()
	const name, value = "forever", "5f0c6f2a"
	w.server.Must("SET", name, value, "NX")
	wantHeld(t, locker, name, -time.Hour, -1)
	if _, err := locker.TryAcquire(ctx, name); err == nil || !strings.Contains(err.Error(), "never ends") {
		t.Errorf("TryAcquire = %v, want it to say that the key never ends", err)
	}
	st, err := d.Status(ctx, name)
	if err != nil || len(st.Holders) != 1 || st.Holders[0].Owner != value || st.Holders[0].Left < 365*24*time.Hour {
		t.Errorf("Status = %+v, %v, want the holder %q for years", st, err, value)
	}
	for _, free := range []struct {
		name string
		do   func() error
	}{
		{"Del", func() error { return w.raw.Del(ctx, name).Err() }},
		{"Break", func() error { return d.Break(ctx, name, value, 0) }},
		{"Expire", func() error { return w.raw.PExpire(ctx, name, 50*time.Millisecond).Err() }},
	} {
		a := wait(t, locker, d, name)
		a.wantNone(t, 300*time.Millisecond)
		freed := time.Now()
		if err := free.do(); err != nil {
			t.Fatalf("%s = %v", free.name, err)
		}
		release(t, a.granted(t, freed, freed.Add(polled)))
		w.server.Must("SET", name, value, "NX")
	}
	if left := w.raw.PTTL(ctx, name).Val(); left != -1 {
		t.Errorf("the key lives for another %v, want no end: it is not ours", left)
	}
}

// TestOtherTypes is about names under which there is something else than a lock of this kind, such as Redisson's.
func TestOtherTypes(t *testing.T) {
	w := newWorld(t)
	for typ, command := range map[string][]any{
		"hash":   {"HSET", "hash", "3e1f7f50:42", 1},
		"list":   {"RPUSH", "list", "a"},
		"set":    {"SADD", "set", "a"},
		"zset":   {"ZADD", "zset", 1, "a"},
		"stream": {"XADD", "stream", "*", "a", "b"},
	} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			locker, d := w.ours(t)
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
			if st, err := d.Status(ctx, typ); err != nil || len(st.Holders)+len(st.Waiters) != 0 {
				t.Errorf("Status = %+v, %v, want nobody", st, err)
			}
			if err := d.Break(ctx, typ, "a", 0); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Break = %v, want ErrLost", err)
			}
			if after := w.raw.Dump(ctx, typ).Val(); after != before {
				t.Errorf("the %s has changed", typ)
			}
		})
	}
}

// TestTypeWhileHeld overwrites the key of a lock that we hold, and wait for.
func TestTypeWhileHeld(t *testing.T) {
	const ttl = 600 * time.Millisecond
	w := newWorld(t)
	locker, _ := w.ours(t, snib.TTL(ttl))
	other, d := w.ours(t)
	lock := acquire(t, locker, "lock")
	a := wait(t, other, d, "lock")
	w.server.Must("EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a', 'b')", 1, "lock") // nobody comes in between
	select {
	case <-lock.Lost():
	case <-time.After(ttl + late):
		t.Error("we hold a lock whose key is something else")
	}
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
	if got := w.server.Must("HGET", "lock", "a"); got != "b" {
		t.Errorf("the hash has %v, want what was there", got)
	}
}
