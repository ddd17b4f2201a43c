package rows_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// A table is a store in memory: rows with exclusive holders that don't end by themselves, and
// their queues.
type table struct {
	mu      sync.Mutex
	rows    map[string]*rows.State
	last    uint64           // the last token
	calls   map[string]int   // by the field of Backend
	failing map[string]error // what the calls return
	late    bool             // the next request is executed, and its answer is lost
	repeats bool             // each request is sent twice
	locked  map[string]bool  // the rows that a transaction has locked
}

func newTable() *table {
	return &table{rows: map[string]*rows.State{}, calls: map[string]int{}, failing: map[string]error{}}
}

// fail makes calls return err. A call is named by its field of Backend.
func (tb *table) fail(err error, calls ...string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, call := range calls {
		tb.failing[call] = err
	}
}

// count returns how often a call was made.
func (tb *table) count(call string) int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.calls[call]
}

// enter locks the table for a call. It returns the row, and the error that the call is to return.
func (tb *table) enter(call, name string) (*rows.State, error) {
	tb.mu.Lock()
	tb.calls[call]++
	if tb.rows[name] == nil {
		tb.rows[name] = &rows.State{Name: name}
	}
	return tb.rows[name], tb.failing[call]
}

func (tb *table) request(_ context.Context, a *rows.Attempt) (*rows.Lease, error) {
	s, err := tb.enter("Request", a.Req.Name)
	defer tb.mu.Unlock()
	a.MarkSent()
	if tb.repeats {
		a.MarkRepeated()
	}
	if err != nil {
		return nil, err
	}
	if h := s.HolderOf(a.Entry.Nonce); h != nil {
		return a.Grant(*h, driver.Now(), false), nil
	}
	place, grantable, delay := s.Position(a.Entry)
	switch {
	case grantable:
		s.Waiters = without(s.Waiters, a.Entry.Nonce)
		tb.last++
		h := a.Entry
		h.Token, h.Tokens, h.Until = tb.last, a.Req.Tokens, time.Hour.Microseconds()
		s.Holders = append(s.Holders, h)
		if tb.late {
			tb.late = false
			return nil, errDown
		}
		return a.Grant(h, driver.Now(), len(s.Waiters) > 0), nil
	case !a.Req.NoWait:
		if place < 0 {
			s.Waiters = append(s.Waiters, a.Entry)
		}
		a.Wait(delay)
	}
	return nil, driver.ErrHeld
}

func without(all []rows.Entry, nonce string) []rows.Entry {
	return slices.DeleteFunc(slices.Clone(all), func(e rows.Entry) bool { return e.Nonce == nonce })
}

func (tb *table) remove(_ context.Context, name, nonce string) error {
	s, err := tb.enter("Remove", name)
	defer tb.mu.Unlock()
	if err == nil {
		s.Holders, s.Waiters = without(s.Holders, nonce), without(s.Waiters, nonce)
	}
	return err
}

func (tb *table) release(_ context.Context, l *rows.Lease) (bool, error) {
	s, err := tb.enter("Release", l.Req.Name)
	defer tb.mu.Unlock()
	if err != nil {
		return false, err
	}
	freed := s.HolderOf(l.Nonce) != nil
	s.Holders = without(s.Holders, l.Nonce)
	return freed, nil
}

func (tb *table) poll(_ context.Context, names, nonces []string, heartbeat bool) (map[string]*rows.State, error) {
	found := map[string]*rows.State{}
	if heartbeat {
		for _, nonce := range nonces {
			_, err := tb.enter("Heartbeat", nonce)
			tb.mu.Unlock()
			if err != nil {
				return nil, err
			}
		}
	}
	for _, name := range names {
		s, err := tb.enter("Poll", name)
		if err == nil {
			read := *s
			if tb.locked[name] {
				read = rows.State{Name: name, Err: errDown}
			}
			found[name] = &read
		}
		tb.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// entries returns how many holders and waiters the lock "a" has.
func (tb *table) entries() int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return len(tb.rows["a"].Holders) + len(tb.rows["a"].Waiters)
}

func (tb *table) backend() rows.Backend {
	return rows.Backend{
		Examine: func(context.Context) error { return nil },
		Request: tb.request, Remove: tb.remove, Release: tb.release, Poll: tb.poll,
		Read: func(ctx context.Context, names []string) (map[string]*rows.State, error) {
			return tb.poll(ctx, names, nil, false)
		},
		PollInterval: pollInterval,
	}
}

const pollInterval = 100 * time.Millisecond

func newDriver(t *testing.T, b rows.Backend) *rows.Driver {
	d := rows.New(b)
	t.Cleanup(func() { d.Close() })
	return d
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: time.Minute}
}

func noWait(name, id string) driver.Request {
	req := request(name, id)
	req.NoWait = true
	return req
}

func acquire(t *testing.T, d *rows.Driver, req driver.Request) driver.Lease {
	t.Helper()
	l, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire of %q by %q = %v", req.Name, req.ID, err)
	}
	return l
}

var (
	errDown = fmt.Errorf("%w: no route", driver.ErrUnavailable)
	errFull = fmt.Errorf("%w: %w", errDown, driver.ErrFull)
)

// TestRemoveAgain checks that the driver repeats the removal of a request that got no answer,
// because the store may still execute it.
func TestRemoveAgain(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		repeats bool
		want    int // removals
	}{
		{"NoAnswer", errDown, false, 6},
		{"Full", errFull, false, 1}, // it has refused the request
		{"FullRepeated", errFull, true, 6},
		{"CallerGone", fmt.Errorf("no answer: %w", errFull), false, 6}, // errFull is the cause of its context
		{"Held", driver.ErrHeld, false, 0},
		{"HeldRepeated", driver.ErrHeld, true, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable()
				tb.repeats = tt.repeats
				b, request := tb.backend(), tb.request
				ctx, cancel := context.WithCancelCause(t.Context())
				b.Request = func(ctx context.Context, a *rows.Attempt) (*rows.Lease, error) {
					if tt.name == "CallerGone" {
						cancel(errFull)
					}
					return request(ctx, a)
				}
				d := newDriver(t, b)
				tb.fail(tt.err, "Request")
				if _, err := d.Acquire(ctx, noWait("a", "1")); !errors.Is(err, tt.err) {
					t.Errorf("Acquire = %v, want %v", err, tt.err)
				}
				time.Sleep(time.Minute)
				if got := tb.count("Remove"); got != tt.want {
					t.Errorf("the entry was removed %d times, want %d", got, tt.want)
				}
			})
		})
	}
}

// TestRemoveAfterOutage checks that entries that can't be removed during an outage are removed
// after it.
func TestRemoveAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		first := acquire(t, d, request("a", "1"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		time.AfterFunc(9*time.Second, func() { tb.fail(errDown, "Request", "Poll", "Remove", "Release") })
		_, err := d.Acquire(ctx, request("a", "2"))
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v, want ErrUnavailable, because the poller got no answer, and the cause of the context", err)
		}
		for range 9 { // as a lock service does, whose client tries again
			d.Lease("a", "1", time.Minute).Release(t.Context())
		}
		if err := first.Release(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Release = %v, want ErrUnavailable", err)
		}
		if got := tb.entries(); got != 2 {
			t.Fatalf("the row has %d entries, want 2", got)
		}
		time.Sleep(time.Hour) // so that a lease would have lapsed
		released := tb.count("Release")
		tb.fail(nil, "Request", "Poll", "Remove", "Release")
		time.Sleep(5 * time.Second)
		if n, left := tb.count("Release")-released, tb.entries(); n != 1 || left != 0 {
			t.Errorf("after the outage, the lease was released %d times, and the row has %d entries; want once, and 0", n, left)
		}
		if err := first.Release(t.Context()); err != nil {
			t.Errorf("Release after the outage = %v, want nil: the driver has released the lease", err)
		}
	})
}

// TestCleanupsOfLongOutage has more requests fail than the driver remembers removals.
func TestCleanupsOfLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		tb.fail(errFull, "Request", "Remove")
		for range 11_000 {
			d.Acquire(t.Context(), noWait("a", "1"))
		}
		time.Sleep(10 * time.Second)
		tried := tb.count("Remove")
		tb.fail(nil, "Request", "Remove")
		time.Sleep(30 * time.Second) // half a TTL
		if n := tb.count("Remove") - tried; n != 10_000 {
			t.Errorf("after the outage, the driver sends %d removals, want those 10000 that it remembers", n)
		}
	})
}

// TestLostAnswer loses the answer to the request that grants a waiter its lock. The waiter sends
// the request again, and is granted once.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		first := acquire(t, d, request("a", "1"))
		time.AfterFunc(time.Second, func() {
			tb.mu.Lock()
			tb.late = true
			tb.mu.Unlock()
			first.Release(context.Background())
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l, err := d.Acquire(ctx, request("a", "2"))
		if err != nil {
			t.Fatalf("Acquire = %v", err)
		}
		if got := l.Grant().Token; got != 2 || tb.entries() != 1 {
			t.Errorf("the token is %d and the row has %d entries, want 2 and 1", got, tb.entries())
		}
	})
}

// TestHungRemovalDelaysNoHeartbeat has another transaction lock a row, so that a removal hangs.
// Waiters for another lock keep their places.
func TestHungRemovalDelaysNoHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable().backend()
		remove, poll := b.Remove, b.Poll
		b.Remove = func(ctx context.Context, name, nonce string) error {
			if name == "locked" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return remove(ctx, name, nonce)
		}
		var last time.Time
		b.Poll = func(ctx context.Context, names, nonces []string, heartbeat bool) (map[string]*rows.State, error) {
			if heartbeat {
				if gap := time.Since(last); !last.IsZero() && gap > rows.HeartbeatTimeout/2 {
					t.Errorf("no heartbeat for %v", gap)
				}
				last = time.Now()
			}
			return poll(ctx, names, nonces, heartbeat)
		}
		d := newDriver(t, b)
		acquire(t, d, request("a", "1"))
		acquire(t, d, request("locked", "1"))
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		go d.Acquire(short, request("locked", "2"))
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d.Acquire(long, request("a", "2"))
		if time.Since(last) > rows.HeartbeatTimeout {
			t.Errorf("the last heartbeat is %v old", time.Since(last))
		}
	})
}

// TestPastOutage checks that the error of a waiter does not report an outage that is over.
func TestPastOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		acquire(t, d, request("a", "1"))
		time.AfterFunc(5*time.Second, func() { tb.fail(errDown, "Request", "Poll") })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := d.Acquire(ctx, request("a", "2")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire during the outage = %v, want ErrUnavailable", err)
		}
		tb.fail(nil, "Request", "Poll")
		time.Sleep(time.Minute)
		ctx, cancel = context.WithTimeout(t.Context(), pollInterval/2)
		defer cancel()
		if _, err := d.Acquire(ctx, request("a", "3")); errors.Is(err, driver.ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire after the outage = %v, want only the end of its context", err)
		}
	})
}

// TestOutageOfWaiter checks that a waiter keeps its place during an outage of up to a minute. The
// waiter sends requests during the outage, or it sleeps behind a holder.
func TestOutageOfWaiter(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sleep bool
		down  time.Duration
		want  error
	}{
		{"Short", false, 50 * time.Second, nil},
		{"Long", false, 3 * time.Minute, driver.ErrUnavailable},
		{"ShortSleep", true, 50 * time.Second, nil},
		{"LongSleep", true, 3 * time.Minute, driver.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable()
				d := newDriver(t, tb.backend())
				first := acquire(t, d, request("a", "1"))
				time.AfterFunc(time.Second, func() {
					if !tt.sleep {
						tb.fail(errDown, "Request") // before the waiter can hear of the release
						first.Release(context.Background())
						return
					}
					tb.fail(errDown, "Request", "Poll")
				})
				time.AfterFunc(time.Second+tt.down, func() {
					tb.fail(nil, "Request", "Poll")
					first.Release(context.Background()) // if it was not released before
				})
				began := time.Now()
				if _, err := d.Acquire(t.Context(), request("a", "2")); !errors.Is(err, tt.want) {
					t.Errorf("Acquire during an outage of %v = %v, want %v", tt.down, err, tt.want)
				}
				if took := time.Since(began); took < tt.down && took < driver.RetryTimeout ||
					took > driver.RetryTimeout+2*driver.AnswerTimeout {
					t.Errorf("Acquire during an outage of %v took %v", tt.down, took)
				}
				d.Close()
			})
		})
	}
}

// TestLockedRow has a transaction lock a row for three minutes. The waiter for its lock gives up
// after a minute, and sends no request meanwhile. The waiter for another lock waits on.
func TestLockedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		acquire(t, d, request("a", "1"))
		acquire(t, d, request("locked", "1"))
		other := make(chan error, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			_, err := d.Acquire(ctx, request("a", "2"))
			other <- err
		}()
		time.AfterFunc(time.Second, func() {
			tb.mu.Lock()
			defer tb.mu.Unlock()
			tb.locked, tb.calls = map[string]bool{"locked": true}, map[string]int{}
		})
		began := time.Now()
		short, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		_, err := d.Acquire(short, request("locked", "2"))
		took := time.Since(began)
		if !errors.Is(err, driver.ErrUnavailable) || took < driver.RetryTimeout ||
			took > driver.RetryTimeout+driver.AnswerTimeout {
			t.Errorf("Acquire of a lock whose row is locked = %v after %v, want ErrUnavailable after %v", err, took,
				driver.RetryTimeout)
		}
		if n := tb.count("Request"); n > 0 {
			t.Errorf("the waiter sent %d requests that could only hang", n)
		}
		time.Sleep(2 * time.Minute)
		if n := tb.count("Heartbeat"); n < 170 {
			t.Errorf("the waiters had %d heartbeats in three minutes, want one each second", n)
		}
		wanted := errors.New("enough")
		cancel(wanted)
		if err := <-other; !errors.Is(err, wanted) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire of another lock = %v, want only the end of its context", err)
		}
	})
}

// TestOutageOfLateWaiter queues a waiter while polls fail and requests don't. That waiter gives up
// a minute after the store has answered its request, and the one before it gives up earlier.
func TestOutageOfLateWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		acquire(t, d, request("a", "1"))
		tb.fail(errDown, "Poll")
		var waiters sync.WaitGroup
		for i := range 2 {
			waiters.Go(func() {
				began := time.Now()
				_, err := d.Acquire(t.Context(), request("a", fmt.Sprint("waiter ", i)))
				took := time.Since(began)
				if !errors.Is(err, driver.ErrUnavailable) || took < driver.RetryTimeout ||
					took > driver.RetryTimeout+2*driver.AnswerTimeout {
					t.Errorf("Acquire of waiter %d = %v after %v, want ErrUnavailable after %v", i, err, took, driver.RetryTimeout)
				}
			})
			time.Sleep(driver.RetryTimeout / 2)
		}
		waiters.Wait()
	})
}

// TestPoll checks that a waiter gets the lock by polling if there are no notifications, and that a
// flood of notifications causes no more requests than polling does.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		first := acquire(t, d, request("a", "1"))
		granted := make(chan error, 1)
		go func() {
			_, err := d.Acquire(t.Context(), request("a", "2"))
			granted <- err
		}()
		synctest.Wait()
		nonce, before := tb.rows["a"].Waiters[0].Nonce, tb.count("Request")
		for range 1000 {
			d.Wake(nonce)
			time.Sleep(time.Millisecond)
		}
		if got := tb.count("Request") - before; got > 11 {
			t.Errorf("1000 notifications in a second caused %d requests, want at most 11", got)
		}
		first.Release(t.Context())
		began := time.Now()
		if err, took := <-granted, time.Since(began); err != nil || took > 2*pollInterval {
			t.Errorf("Acquire = %v, %v after the release, want a lease after at most two polls", err, took)
		}
	})
}

// TestPollAfterAcquire ends an acquisition during a poll for its row. The answer must not reach
// OnWait any more.
func TestPollAfterAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable().backend()
		poll, polled := b.Poll, 0
		b.Poll = func(ctx context.Context, names, nonces []string, heartbeat bool) (map[string]*rows.State, error) {
			found, err := poll(ctx, names, nonces, heartbeat)
			polled++
			time.Sleep(time.Second / 2) // the answer takes so long
			return found, err
		}
		d := newDriver(t, b)
		acquire(t, d, request("a", "1"))
		told, returned := 0, false
		req := request("a", "2")
		req.OnWait = func(err error) {
			if told++; returned {
				t.Errorf("OnWait(%v) was called after Acquire had returned", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), pollInterval+time.Second/4)
		defer cancel()
		if _, err := d.Acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v, want the end of its context", err)
		}
		returned = true
		synctest.Wait()
		time.Sleep(time.Second)
		if told == 0 || polled == 0 {
			t.Errorf("OnWait was called %d times, with %d polls: nothing was tested", told, polled)
		}
	})
}

// TestHeartbeats checks that each waiter has a heartbeat every second, also while notifications
// arrive.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable()
		d := newDriver(t, tb.backend())
		acquire(t, d, request("a", "1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+pollInterval)
		defer cancel()
		for i := range 10 {
			go d.Acquire(ctx, request("a", fmt.Sprint("waiter ", i)))
		}
		d.Connected()
		time.Sleep(time.Minute)
		if got := tb.count("Heartbeat"); got < 580 || got > 610 {
			t.Errorf("10 waiters had %d heartbeats in a minute, want one each second", got)
		}
	})
}

// TestRememberedLeases checks that the driver remembers only the lease whose loss it must tell,
// until that lapses: nobody releases a lost lease with a LockDelay.
func TestRememberedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable().backend()
		b.TellsBreak = true
		d := newDriver(t, b)
		acquire(t, d, request("a", "1"))
		told := request("b", "2")
		told.OnLost = func(error) {}
		l := acquire(t, d, told).(*rows.Lease)
		for i, want := range []int{1, 1, 1, 0} {
			if stopped := d.StopListening(); stopped != (want == 0) || len(d.LeasesOf()) != want {
				t.Errorf("check %d: stopped = %v, and the driver remembers %d leases, want %d", i, stopped, len(d.LeasesOf()), want)
			}
			if i == 1 {
				l.Renewed(true, driver.Now())
			}
			time.Sleep(told.TTL * 2 / 3)
		}
	})
}

// TestListener checks that a listener that fails connects again, and that the pauses are shorter if
// the last connection worked.
func TestListener(t *testing.T) {
	for _, tt := range []struct {
		name     string
		works    bool
		err      error
		min, max int32 // connections in a minute
	}{
		{"Refused", false, errDown, 15, 20},
		{"Cut", true, errDown, 100, 130},
		{"Never", true, rows.ErrCantListen, 12, 13},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var connections atomic.Int32
				b := newTable().backend()
				var d *rows.Driver
				b.Listen = func() error {
					connections.Add(1)
					if tt.works {
						d.Connected()
					}
					return tt.err
				}
				d = newDriver(t, b)
				acquire(t, d, request("a", "1"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				d.Acquire(ctx, request("a", "2"))
				if n := connections.Load(); n < tt.min || n > tt.max {
					t.Errorf("the listener connected %d times in a minute, want %d to %d", n, tt.min, tt.max)
				}
				time.Sleep(20 * time.Second)
				before := connections.Load()
				if time.Sleep(time.Minute); connections.Load() != before {
					t.Error("the listener goes on although nobody waits")
				}
			})
		})
	}
}

func TestPosition(t *testing.T) {
	const now = 1000
	holder, reader := rows.Entry{Until: now + 5000}, rows.Entry{Shared: true, Until: now + 7000}
	slot := func(n int) rows.Entry { return rows.Entry{Slots: n, Until: now + 5000} }
	waiting := func(nonce string, shared bool, until int64) rows.Entry {
		return rows.Entry{Nonce: nonce, Shared: shared, Until: until}
	}
	for _, tt := range []struct {
		name      string
		state     rows.State
		newcomer  rows.Entry
		place     int
		grantable bool
		delay     time.Duration
	}{
		{"Free", rows.State{}, holder, -1, true, time.Hour},
		{"Held", rows.State{Holders: []rows.Entry{holder}}, holder, -1, false, 5 * time.Millisecond},
		{"Reader", rows.State{Holders: []rows.Entry{reader}}, reader, -1, true, 7 * time.Millisecond},
		{"ReaderBehindWriter", rows.State{Holders: []rows.Entry{reader}, Waiters: []rows.Entry{waiting("x", false, 0)}}, reader,
			-1, false, 7 * time.Millisecond},
		{"First", rows.State{Waiters: []rows.Entry{waiting("n", false, 0)}}, holder, 0, true, time.Hour},
		{"Second", rows.State{Waiters: []rows.Entry{waiting("x", false, now+3000), waiting("n", true, now+1000)}}, holder, 1,
			false, 3 * time.Millisecond},
		{"Slot", rows.State{Slots: 2, Holders: []rows.Entry{slot(2)}}, slot(2), -1, true, 5 * time.Millisecond},
		{"NoSlot", rows.State{Slots: 1, Holders: []rows.Entry{slot(1)}}, slot(1), -1, false, 5 * time.Millisecond},
		{"LessSlots", rows.State{Slots: 1, Holders: []rows.Entry{slot(2)}}, slot(1), -1, false, 5 * time.Millisecond},
		{"MoreSlots", rows.State{Slots: 2, Holders: []rows.Entry{slot(1)}}, slot(2), -1, false, 5 * time.Millisecond},
		{"LessSlotsAhead", rows.State{Slots: 3, Holders: []rows.Entry{slot(3)}, Waiters: []rows.Entry{slot(2)}}, slot(3), -1, false,
			5 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.state.Now, tt.newcomer.Nonce = now, "n"
			place, grantable, delay := tt.state.Position(tt.newcomer)
			if place != tt.place || grantable != tt.grantable || delay != tt.delay {
				t.Errorf("Position = %d, %v, %v, want %d, %v, %v", place, grantable, delay, tt.place, tt.grantable, tt.delay)
			}
		})
	}
}

// TestStatements checks that a part that is missing can't go unnoticed.
func TestStatements(t *testing.T) {
	type statements struct{ OneMore string }
	files := fstest.MapFS{
		"sql/one_more.sql": {Data: []byte("-- comment\nSELECT {two} {given}")}, "sql/two.sql": {Data: []byte("2")},
	}
	if got := rows.Statements[statements](files, map[string]string{"given": "3"}).OneMore; got != "SELECT 2 3" {
		t.Errorf("statement = %q", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("Statements without a part does not panic")
		}
	}()
	rows.Statements[statements](files, nil)
}

// TestNoteNewRow creates rows: a driver prunes, once at a time, more of them than it creates.
func TestNoteNewRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prunes, limited, done := 0, true, make(chan struct{})
		b := newTable().backend()
		b.Prune = func(ctx context.Context, _ time.Duration) error {
			prunes++
			_, limited = ctx.Deadline()
			<-done
			return nil
		}
		d := newDriver(t, b)
		create := func(n, atLeast, atMost int) {
			t.Helper()
			for range n {
				d.NoteNewRow()
				synctest.Wait()
			}
			if prunes < atLeast || prunes > atMost || !limited {
				t.Errorf("%d more rows: pruned %d times, limited: %v; want %d to %d times", n, prunes, limited, atLeast, atMost)
			}
		}
		create(20_000, 1, 1)
		close(done)
		create(50_000, 50, 200) // 100 are usual
		d.Close()
		create(5000, prunes, prunes)
	})
}

func TestBetween(t *testing.T) {
	const most = 100 * 365 * 24 * time.Hour
	for _, tt := range []struct {
		from, to int64
		want     time.Duration
	}{
		{5, 7, 2 * time.Microsecond},
		{7, 7, 0},
		{7, 5, 0},
		{math.MaxInt64, math.MinInt64, 0},
		{1_800_000_000_000_000, 253_402_300_799_000_000, most}, // the end of the year 9999
		{0, math.MaxInt64, most},
		{math.MinInt64, math.MaxInt64, most},
		{0, most.Microseconds() - 1, most - time.Microsecond},
	} {
		if got := rows.Between(tt.from, tt.to); got != tt.want {
			t.Errorf("Between(%d, %d) = %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
