package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestHungServer stops the server for three TTLs while there are 51 holds of all kinds. Each
// holder is told before the server could have given its lock away, and soon after its own
// deadline.
func TestHungServer(t *testing.T) {
	const ttl = 2 * time.Second
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	l := locker(t, d, snib.TTL(ttl))
	var all []*held
	for i := range 51 {
		mode := modes[i%3]
		name := mode.name
		opts := mode.opts
		switch mode.name {
		case "Exclusive":
			name = fmt.Sprint(name, i)
		case "Slots":
			opts = []snib.Option{snib.Slots(17)}
		}
		lock, err := l.With(opts...).Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		h := &held{lock: lock, name: name}
		context.AfterFunc(lock.Context(), func() { now := time.Now(); h.told.Store(&now) })
		all = append(all, h)
	}
	time.Sleep(ttl) // so that all were renewed

	var before time.Time
	ends := map[string]time.Time{} // of the leases at the server, or later
	livetest.Await(t, "moment in which not all are renewed", func() error {
		for _, h := range all {
			h.early = time.Now().Add(h.lock.Validity())
		}
		before = time.Now()
		if err := d.List(t.Context(), "", func(s driver.Status) bool {
			for _, holding := range s.Holders {
				ends[s.Name+holding.ID] = time.Now().Add(holding.Left)
			}
			return true
		}); err != nil {
			return err
		}
		for _, h := range all {
			if !h.renewed(time.Now()) {
				node.Hang() // before any other lease is renewed
				return nil
			}
		}
		return errors.New("all were renewed")
	})
	time.Sleep(20 * time.Millisecond) // in which answers under way arrive
	stop := livetest.Lateness()
	for _, h := range all {
		h.end = time.Now().Add(h.lock.Validity())
		h.expires = ends[h.name+h.lock.ID()]
	}

	patient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	slack := livetest.Slack(t)
	began := time.Now()
	if lock, err := l.Acquire(patient, "another"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire while the server hangs = %v, %v", lock, err)
	}
	if took := time.Since(began); took > 300*time.Millisecond+2*time.Second+slack() {
		t.Errorf("Acquire came back %v after its context was done", took-300*time.Millisecond)
	}

	// The server hangs until then.
	time.Sleep(time.Until(before.Add(3*ttl + 100*time.Millisecond)))
	machine := stop()
	var late []time.Duration
	checked := 0
	for _, h := range all {
		told := h.told.Load()
		if told == nil {
			t.Fatalf("%s is not told after 3 × TTL", h.name)
		}
		if cause := context.Cause(h.lock.Context()); !errors.Is(cause, snib.ErrLost) {
			t.Errorf("%s ended with %v, want ErrLost", h.name, cause)
		}
		late = append(late, told.Sub(h.end))
		if h.end.Sub(h.early).Abs() > time.Millisecond { // it was renewed while we looked
			continue
		}
		checked++
		if over := told.Sub(h.expires); over > 10*machine { // the excess may be the machine's
			t.Errorf("%s was told %v after the server may have given it away, on a machine that was late by %v", h.name, over, machine)
		}
	}
	if checked == 0 {
		t.Error("none can be compared with the server")
	}
	slices.Sort(late)
	t.Logf("%d can be compared with the server; told after the deadline by: first %v, median %v, last %v; the machine was late by %v", checked, late[0], late[len(late)/2], late[len(late)-1], machine)

	node.Resume()
	for _, h := range all {
		if err := h.lock.Release(); !errors.Is(err, snib.ErrLost) {
			t.Errorf("%s: Release = %v, want ErrLost", h.name, err)
		}
	}
	lock, err := l.Acquire(t.Context(), all[0].name)
	if err != nil {
		t.Fatalf("Acquire after the server went on = %v", err)
	}
	if lock.Token() <= all[0].lock.Token() {
		t.Errorf("token %d after %d", lock.Token(), all[0].lock.Token())
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// A held is a hold of TestHungServer.
type held struct {
	lock    *snib.Lock
	name    string
	early   time.Time // deadline of the hold, before the server was examined
	end     time.Time // deadline of the hold, when the server hung
	expires time.Time // end of the lease at the server, or later
	told    atomic.Pointer[time.Time]
}

// renewed reports whether the hold was renewed since early was noted.
func (h *held) renewed(now time.Time) bool {
	return now.Add(h.lock.Validity()).Sub(h.early).Abs() > time.Millisecond
}

// TestHungServerBounded sends requests to a server that hangs. The goroutines that they leave
// behind must not add up.
func TestHungServerBounded(t *testing.T) {
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	l := locker(t, d, snib.TTL(2*time.Second))
	before := runtime.NumGoroutine()
	machine := livetest.Lateness()
	node.Hang()
	const workers = 64
	stop := make(chan struct{})
	var running sync.WaitGroup
	var times [workers][]time.Duration // durations of the attempts
	for i := range workers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				began := time.Now()
				_, err := l.Acquire(ctx, fmt.Sprint("name", i))
				cancel()
				times[i] = append(times[i], time.Since(began))
				if err == nil {
					t.Error("Acquire while the server hangs = nil")
				}
			}
		})
	}
	most := 0
	for range 40 {
		time.Sleep(100 * time.Millisecond) // between two counts, for twice the TTL in all
		most = max(most, runtime.NumGoroutine())
	}
	close(stop)
	running.Wait()
	all := slices.Concat(times[:]...)
	slices.Sort(all)
	median, longest := all[len(all)/2], all[len(all)-1]
	t.Logf("%d attempts by %d goroutines took %v, the longest %v; %d goroutines at the most, %d before", len(all), workers, median, longest, most, before)
	if most > before+12*workers {
		t.Errorf("%d goroutines at the most, for %d that ask", most, workers)
	}
	if late := machine(); median > time.Second+10*late || longest > 2*time.Second+10*late {
		t.Errorf("attempts with a context of 50 ms took %v, and up to %v, on a machine that was late by %v", median, longest, late)
	}
	node.Resume()
	lock, err := l.Acquire(t.Context(), "name0")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	// It lapses within one TTL.
	livetest.Await(t, "end of what could not be withdrawn", func() error {
		for _, key := range keys(t, node) {
			if strings.HasPrefix(key, "name") {
				return fmt.Errorf("the key %q is left", key)
			}
		}
		return nil
	})
}

// TestStall stops the server for 100 ms, several times. All goroutines go on.
func TestStall(t *testing.T) {
	node := used(t, redistest.Single(t))
	l := locker(t, open(t, at(node.Addr())), snib.TTL(5*time.Second))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var inside atomic.Int32
	cycles := make([]atomic.Int64, 64+8)
	work := func(l *snib.Locker, name string, count *atomic.Int64, alone bool) {
		for ctx.Err() == nil {
			err := l.Do(ctx, name, func(context.Context, *snib.Lock) error {
				if alone {
					if inside.Add(1) != 1 {
						t.Error("two hold the lock")
					}
					inside.Add(-1)
				}
				return nil
			})
			if err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			count.Add(1)
		}
	}
	for i := range 64 {
		running.Go(func() { work(l, fmt.Sprint("own", i), &cycles[i], false) })
	}
	for i := range 8 {
		other := locker(t, open(t, at(node.Addr())), snib.TTL(5*time.Second))
		running.Go(func() { work(other, "one", &cycles[64+i], true) })
	}
	for round := range 3 {
		time.Sleep(200 * time.Millisecond) // in which all work
		node.Hang()
		time.Sleep(100 * time.Millisecond) // the stall
		node.Resume()
		before := make([]int64, len(cycles))
		for i := range cycles {
			before[i] = cycles[i].Load()
		}
		resumed, machine := time.Now(), livetest.Lateness()
		deadline := resumed.Add(enough)
		for i := range cycles {
			for cycles[i].Load() < before[i]+2 {
				if time.Now().After(deadline) {
					t.Fatalf("round %d: goroutine %d hangs after a stall of 100 ms", round, i)
				}
				time.Sleep(time.Millisecond) // between two checks
			}
		}
		took, late := time.Since(resumed), machine()
		t.Logf("all 72 went on within %v", took)
		if took > soonEnough+10*late {
			t.Errorf("round %d: all went on within %v, on a machine that was late by %v, after a stall of 100 ms", round, took, late)
		}
	}
	cancel()
	running.Wait()
	nothingLeft(t, node)
}

// TestKilledServer kills the server while there are a holder and waiters, and starts it again
// without its memory. The waiters get the lock, one after the other, once it is certain that
// the holder has lost it.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	node := used(t, redistest.Single(t))
	holder := locker(t, open(t, at(node.Addr())), snib.TTL(ttl))
	waiters := []driver.Driver{open(t, at(node.Addr())), open(t, at(node.Addr()))}
	lock, err := holder.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	first := wait(t, waiters[0], request("job", "first", ttl), 1)
	second := wait(t, waiters[1], request("job", "second", ttl), 2)
	node.Kill()
	node.Restart()
	var a, b driver.Lease
	select {
	case r := <-first:
		if r.err != nil {
			t.Fatal(r.err)
		}
		a = r.lease
		if lock.Validity() > 0 {
			t.Errorf("granted while the hold of before the restart lasts another %v", lock.Validity())
		}
		free(t, a)
		b, _ = granted(t, second, enough, "second")
	case r := <-second: // the server has forgotten the queue, too
		if r.err != nil {
			t.Fatal(r.err)
		}
		b = r.lease
		if lock.Validity() > 0 {
			t.Errorf("granted while the hold of before the restart lasts another %v", lock.Validity())
		}
		free(t, b)
		a, _ = granted(t, first, enough, "first")
	case <-time.After(enough):
		t.Fatal("nobody gets the lock after the server is back")
	}
	select {
	case <-lock.Lost():
	default:
		t.Error("the holder was not told that its lock is gone")
	}
	if token(a) <= lock.Token() || token(b) <= lock.Token() || token(a) == token(b) {
		t.Errorf("tokens %d and %d, after %d", token(a), token(b), lock.Token())
	}
	_ = a.Release(t.Context()) // one of them is released
	_ = b.Release(t.Context())
	if err := lock.Release(); !errors.Is(err, snib.ErrLost) {
		t.Errorf("Release of a lock that was lost = %v", err)
	}
	nothingLeft(t, node)
}

// TestHungServerReturns stops the server itself. Acquisitions return soon after their contexts
// end, whatever ends the contexts and whatever the acquisitions are doing. An acquisition that
// must not wait fails because it is unanswered. The least lateness counts, because a busy
// machine is late now and then.
func TestHungServerReturns(t *testing.T) {
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	byUser := openOn(t, node, func(c redislock.Conn) redislock.Conn { return c })
	take(t, other, request("held", "holder", time.Minute))
	because := errors.New("enough")
	for _, tt := range []struct {
		name, lock string
		ttl        time.Duration
		hangFirst  bool
		d          *redislock.Driver
	}{
		{"First", "free", time.Second, true, d},
		{"FirstByUser", "free", time.Second, true, byUser},
		{"FirstLong", "free", time.Minute, true, d},
		{"Waiting", "held", time.Minute, false, d},
		{"Asking", "held", time.Minute, true, d},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var late, noisy []time.Duration // noisy: on a machine that was late itself
			const rounds, most = 4, 15
			for i := 0; i < most && len(late) < rounds; i++ {
				ctx, cancel := context.WithCancelCause(t.Context())
				if tt.hangFirst {
					node.Hang()
				}
				done := beginWith(ctx, tt.d, request(tt.lock, fmt.Sprint(tt.name, i), tt.ttl))
				if !tt.hangFirst {
					queued(t, other, tt.lock, 1)
					node.Hang()
				}
				time.Sleep(20 * time.Millisecond) // in which the request is sent
				machine := livetest.Lateness()
				over := time.Now()
				cancel(because)
				r := <-done
				if machine() > driver.CancelTimeout/5 {
					noisy = append(noisy, r.at.Sub(over))
				} else {
					late = append(late, r.at.Sub(over))
				}
				node.Resume()
				if !errors.Is(r.err, because) {
					t.Errorf("Acquire = %v, %v, want the cause", r.lease, r.err)
				}
				livetest.Await(t, "withdrawal", func() error {
					if n := len(status(t, other, tt.lock).Waiters); n > 0 {
						return fmt.Errorf("%d wait", n)
					}
					if tt.lock == "free" && len(status(t, other, tt.lock).Holders) > 0 {
						return errors.New("it is held")
					}
					return nil
				})
			}
			if len(late) == 0 {
				late = noisy // one of the many was in time
			}
			if least := slices.Min(late); least > driver.CancelTimeout {
				t.Errorf("Acquire returned %v after its contexts were done, want at most %v", late, driver.CancelTimeout)
			}
		})
	}
	node.Hang()
	defer node.Resume()
	req := request("free", "hurried", time.Minute)
	req.NoWait = true
	slack := livetest.Slack(t)
	began := time.Now()
	if l, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire with NoWait at a hung server = %v, %v, want ErrUnavailable", l, err)
	}
	if took := time.Since(began); took > driver.AnswerTimeout+soonEnough+slack() {
		t.Errorf("Acquire with NoWait at a hung server took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if l, err := d.Acquire(ctx, request("free", "patient", time.Minute)); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire at a hung server = %v, %v, want ErrUnavailable and the end of its context", l, err)
	}
}

// TestUnavailable sends requests to servers that can't serve at the moment, or not any more.
// The error gives the reason, and says that nobody is known to hold the lock.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *redistest.Node)
		want string
	}{
		{"OOM", func(_ *testing.T, n *redistest.Node) { n.Must("CONFIG", "SET", "maxmemory", 1) }, "the server's memory is full (maxmemory)"},
		{"Killed", func(_ *testing.T, n *redistest.Node) { n.Kill() }, ""},
		{"TooManyClients", func(t *testing.T, n *redistest.Node) { t.Cleanup(n.Crowd()) },
			""}, // the server says so and hangs up; usually only the latter arrives
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := used(t, redistest.Single(t))
			d := open(t, at(node.Addr()))
			l := take(t, d, request("held", "holder", floor))
			tt.do(t, node)
			req := request("job", "hurried", floor)
			req.NoWait = true
			_, err := d.Acquire(t.Context(), req)
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) ||
				!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "script") {
				t.Errorf("Acquire = %v, want ErrUnavailable that says %q, and nothing of scripts", err, tt.want)
			}
			t.Log(err)
			if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil && !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("Renew = %v, want nil or ErrUnavailable", err)
			}
			switch tt.name {
			case "OOM":
				free(t, l) // it needs no memory
			case "TooManyClients":
				if d, err := redislock.Open(t.Context(), at(node.Addr())); !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("Open = %v, %v, want ErrUnavailable", d, err)
				}
			case "Killed":
				if d, err := redislock.Open(t.Context(), at(node.Addr())); !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("Open = %v, %v, want ErrUnavailable", d, err)
				}
			}
		})
	}
}

// TestReleaseUnavailable checks that a Release that the server could not carry out says that
// the store is unavailable, whether the server answered so or is gone.
func TestReleaseUnavailable(t *testing.T) {
	for name, hinder := range map[string]func(*redistest.Node){
		"Refused": func(n *redistest.Node) { n.Must("CONFIG", "SET", "min-replicas-to-write", "1") },
		"Gone":    func(n *redistest.Node) { n.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			node := used(t, redistest.Single(t))
			d := open(t, at(node.Addr()))
			l, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: "a", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			hinder(node)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := l.Release(ctx); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("Release = %v, want ErrUnavailable", err)
			}
		})
	}
}

// TestExecutedLate gives up a request that the network holds back until the driver has another
// connection, and has withdrawn the request on that one. Then the server executes the request. The
// driver withdraws it again.
func TestExecutedLate(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	proxy := livetest.NewProxy(t, node.Addr())
	o := at(proxy.Addr())
	o.ConnWriteTimeout = 200 * time.Millisecond // after that, the client gives the connection up
	d, other := open(t, o), open(t, at(node.Addr()))
	free(t, take(t, d, request("job", "first", time.Minute)))
	deliver := proxy.StallConnected()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if l, err := d.Acquire(ctx, request("job", "given up", time.Minute)); err == nil {
		t.Fatalf("Acquire while nothing gets through = %v", l)
	}
	livetest.Await(t, "new connection", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := d.Acquire(ctx, request("another job", "a", time.Minute))
		if err == nil {
			err = l.Release(ctx)
		}
		return err
	})
	deliver()
	// The server grants the lock now. On a slow machine the withdrawal may be seen first.
	for began := time.Now(); time.Since(began) < time.Second && len(status(t, other, "job").Holders) == 0; {
		time.Sleep(time.Millisecond)
	}
	livetest.Await(t, "withdrawal", func() error {
		if st := status(t, other, "job"); len(st.Holders) > 0 {
			return fmt.Errorf("the holder is %q", st.Holders[0].ID)
		}
		return nil
	})
}
