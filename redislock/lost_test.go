package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// A wire is one server with two paths to it, one of which can lose answers.
type wire struct {
	node  *redistest.Node
	proxy *livetest.Proxy
	bad   *redislock.Driver // through the proxy
	good  *redislock.Driver
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{node: used(t, redistest.Single(t))}
	w.proxy = livetest.NewProxy(t, w.node.Addr())
	w.bad, w.good = open(t, at(w.proxy.Addr())), open(t, at(w.node.Addr()))
	for _, mode := range modes { // so that the server knows all scripts
		l := take(t, w.bad, mode.as(request("warm", "warm", time.Minute)))
		if err := renew(t, w.bad, l); err != nil {
			t.Fatal(err)
		}
		free(t, l)
	}
	return w
}

// share makes the driver's connection carry several commands at a time, so that no call's
// deadline closes it.
func (w *wire) share(t *testing.T) {
	t.Helper()
	l := take(t, w.bad, request("warm", "warm", time.Minute))
	defer free(t, l)
	// Without a deadline the client reads in its own goroutine.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 4 {
		if r := w.bad.Renew(ctx, []driver.Lease{l}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
}

// endings are what happens to the connection whose answer was lost, and whether it is shared.
var endings = []struct {
	name   string
	then   livetest.Ending
	shared bool
}{
	{"Close", livetest.ThenClose, false},
	{"Hang", livetest.ThenHang, false},
	{"CloseShared", livetest.ThenClose, true},
	{"HangShared", livetest.ThenHang, true},
}

// TestLostAnswers loses the first answer to each kind of request, for each kind of lock.
func TestLostAnswers(t *testing.T) {
	for _, ending := range endings {
		t.Run(ending.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			if ending.shared {
				w.share(t)
			}
			for _, mode := range modes {
				for _, tt := range []struct {
					name string
					run  func(*testing.T, *wire, livetest.Ending, func(id string) driver.Request)
				}{
					{"Acquire", lostAcquire}, {"Queue", lostQueue}, {"Renew", lostRenew}, {"Release", lostRelease},
					{"SetHolder", lostSetHolder}, {"Withdraw", lostWithdraw},
				} {
					t.Run(mode.name+"/"+tt.name, func(t *testing.T) {
						name := mode.name + " " + tt.name
						tt.run(t, w, ending.then, func(id string) driver.Request {
							return mode.as(request(name, id, time.Minute))
						})
						w.proxy.Heal()
						nothingLeft(t, w.node)
					})
				}
			}
		})
	}
}

// checkSoleHolder checks that the lease is the one that the store knows, and that nobody else
// gets the lock.
func (w *wire) checkSoleHolder(t *testing.T, l driver.Lease, req driver.Request) {
	t.Helper()
	st := status(t, w.good, req.Name)
	if len(st.Holders) != 1 || st.Holders[0].ID != l.ID() || st.Holders[0].Token != token(l) {
		t.Errorf("holders = %+v, want %s with the token %d", st.Holders, l.ID(), token(l))
	}
	other := req
	other.ID, other.Shared, other.Slots = "intruder", false, 0
	if req.Slots == 0 {
		refused(t, w.good, other, "beside the holder")
	}
}

func lostAcquire(t *testing.T, w *wire, then livetest.Ending, req func(string) driver.Request) {
	lost := w.proxy.LoseAnswers(1, then, req("").Name)
	waiter := begin(t, w.bad, req("a"))
	awaitClosed(t, lost, "the loss")
	var first uint64 // if the answer is very late, the request is repeated only after this
	if st := status(t, w.good, req("").Name); len(st.Holders) == 1 {
		first = st.Holders[0].Token
	}
	l, _ := granted(t, waiter, enough, "a, whose first answer was lost")
	if token(l) != first {
		t.Errorf("the token is %d, want %d as the store gave it at first", token(l), first)
	}
	w.checkSoleHolder(t, l, req("a"))
	if err := renew(t, w.bad, l); err != nil {
		t.Errorf("Renew = %v", err)
	}
	free(t, l)
	next := take(t, w.good, req("b"))
	if token(next) <= token(l) {
		t.Errorf("the next token is %d, after %d", token(next), token(l))
	}
	free(t, next)
}

func lostQueue(t *testing.T, w *wire, then livetest.Ending, req func(string) driver.Request) {
	blocker := req("a")
	blocker.Shared = false // otherwise there is nothing to wait for
	l := take(t, w.good, blocker)
	others := []driver.Lease{}
	for i := 1; i < blocker.Slots; i++ {
		others = append(others, take(t, w.good, req(fmt.Sprint("a", i))))
	}
	lost := w.proxy.LoseAnswers(1, then, "snib.q:{"+req("").Name)
	waiter := begin(t, w.bad, req("b"))
	awaitClosed(t, lost, "the loss")
	queued(t, w.good, blocker.Name, 1)
	later := wait(t, w.good, req("c"), 2)
	livetest.Await(t, "second request of b", func() error {
		waiters := status(t, w.good, blocker.Name).Waiters
		if len(waiters) != 2 || waiters[0].ID != "b" {
			t.Fatalf("the queue is %+v, want b and c", waiters)
		}
		if w.node.Must("ZSCORE", "snib.q:{"+blocker.Name+"}", `"b"`) == nil {
			return errors.New("it has asked once")
		}
		return nil
	})
	free(t, l)
	for range 2 { // first b, unless a busy machine lets the time pass that b has to confirm what it is handed
		var next result
		select {
		case next = <-waiter:
		case next = <-later:
		case <-time.After(enough):
			t.Fatalf("neither b nor c was granted the lock within %v", enough)
		}
		if next.err != nil {
			t.Fatalf("Acquire = %v", next.err)
		}
		if token(next.lease) <= token(l) {
			t.Errorf("token %d after %d", token(next.lease), token(l))
		}
		free(t, next.lease)
	}
	for _, o := range others {
		free(t, o)
	}
}

func lostRenew(t *testing.T, w *wire, then livetest.Ending, req func(string) driver.Request) {
	l := take(t, w.bad, req("a"))
	lost := w.proxy.LoseAnswers(1, then, req("").Name)
	livetest.Await(t, "renewal after a lost answer", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		r := w.bad.Renew(ctx, []driver.Lease{l})[0]
		if r.Err == nil && r.Start.IsZero() {
			t.Errorf("Renew gave neither a start nor an error")
		}
		select {
		case <-lost:
			return r.Err
		default:
			return fmt.Errorf("no answer was lost: %w", context.DeadlineExceeded)
		}
	})
	w.checkSoleHolder(t, l, req("a"))
	free(t, l)
}

func lostRelease(t *testing.T, w *wire, then livetest.Ending, req func(string) driver.Request) {
	l := take(t, w.bad, req("a"))
	lost := w.proxy.LoseAnswers(1, then, req("").Name)
	free(t, l)
	awaitClosed(t, lost, "the loss")
	next := take(t, w.good, req("b"))
	free(t, l) // repeated, it is harmless
	w.checkSoleHolder(t, next, req("b"))
	if err := renew(t, w.good, next); err != nil {
		t.Errorf("Renew of the next hold = %v", err)
	}
	free(t, next)
}

// lostSetHolder loses the answer that a hold has ended.
func lostSetHolder(t *testing.T, w *wire, then livetest.Ending, req func(string) driver.Request) {
	l := take(t, w.bad, req("a"))
	if err := w.good.Break(t.Context(), req("").Name, l.ID()); err != nil {
		t.Fatalf("Break = %v", err)
	}
	lost := w.proxy.LoseAnswers(1, then, "snib.q:{"+req("").Name) // no renewal
	if err := l.SetHolder(t.Context(), driver.Holder{}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("SetHolder of a hold that was broken = %v, want ErrLost", err)
	}
	awaitClosed(t, lost, "the loss")
}

// lostWithdraw loses the answer to the withdrawal of a cancelled wait.
func lostWithdraw(t *testing.T, w *wire, then livetest.Ending, req func(string) driver.Request) {
	blocker := req("a")
	blocker.Shared = false
	holds := []driver.Lease{take(t, w.good, blocker)}
	for i := 1; i < blocker.Slots; i++ {
		holds = append(holds, take(t, w.good, req(fmt.Sprint("a", i))))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiter := beginWith(ctx, w.bad, req("b"))
	queued(t, w.good, blocker.Name, 1)
	lost := w.proxy.LoseAnswers(1, then, req("").Name)
	cancel()
	if r := <-waiter; r.err == nil {
		t.Fatalf("a cancelled Acquire = %v, nil", r.lease)
	}
	awaitClosed(t, lost, "the loss")
	queued(t, w.good, blocker.Name, 0)
	for _, l := range holds {
		free(t, l)
	}
}
