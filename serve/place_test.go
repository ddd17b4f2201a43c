package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

func isFree(st driver.Status) bool { return len(st.Holders)+len(st.Waiters) == 0 }

// TestPlaceIsKept checks that a client that comes back in time has the place that it had.
func TestPlaceIsKept(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	g := r.acquire(msg("job", "a"))
	r.queue(msg("job", "b"))
	r.queue(msg("job", "c"))
	r.post(wire.PathAcquire, msg("job", "c"), http.StatusLocked) // it does not wait this time
	waits := msg("job", "c")
	waits.Wait = long
	later := r.start(t.Context(), wire.PathAcquire, waits)
	livetest.Await(t, "request of the second client", func() error {
		if n := r.service.Stats().Waits; n != 1 {
			return fmt.Errorf("%d requests wait", n)
		}
		return nil
	})
	r.release(g)
	b := msg("job", "b")
	b.Wait = long
	g = r.acquire(b)
	select {
	case a := <-later:
		t.Fatalf("the client behind it was answered %+v", a)
	default:
	}
	r.release(g)
	r.check(<-later, "the request of the next client", http.StatusOK)
}

// TestPlaceOfAnotherKind repeats a request that waits, but asks for another kind of hold. It must
// not get the hold that the first one waits for.
func TestPlaceOfAnotherKind(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	g := r.acquire(msg("job", "a"))
	waits := msg("job", "b")
	waits.Shared = true
	r.queue(waits)
	for name, change := range map[string]func(*wire.Acquire){
		"Exclusive": func(m *wire.Acquire) { m.Shared = false },
		"Slots":     func(m *wire.Acquire) { m.Shared, m.Slots = false, 3 },
		"MinHold":   func(m *wire.Acquire) { m.MinHold = 1 },
		"Tokens":    func(m *wire.Acquire) { m.Tokens = 2 },
		"Reserved":  func(m *wire.Acquire) { m.Reserve, m.Label = true, "maintenance" },
	} {
		t.Run(name, func(t *testing.T) {
			other := waits
			change(&other)
			a := r.post(wire.PathAcquire, other, http.StatusConflict)
			if a.problem.Kind() != wire.ProblemKind || !strings.Contains(a.problem.Detail, "another id") {
				t.Errorf("the problem is %+v, want one that says to use another id", a.problem)
			}
		})
	}
	waits.TTL, waits.Label = long/2, "release 7"
	r.queue(waits) // the same request otherwise
	r.queue(msg("job", "c"))
	r.release(g)
	waits.Wait = long
	r.acquire(waits)
	r.post(wire.PathWithdraw, wire.Lease{Name: "job", ID: longID("c")}, http.StatusNoContent)
}

// TestPlaceEnds checks that a client that does not come back loses its place, and does not keep
// others from theirs.
func TestPlaceEnds(t *testing.T) {
	store := new(memlock.Store)
	r := startReplica(t, store, Options{limits: limits{placeTimeout: brief}})
	g := r.acquire(msg("job", "a"))
	r.queue(msg("job", "b"))
	awaitStatus(t, store, "job", "end of the place", func(st driver.Status) bool { return len(st.Waiters) == 0 })
	r.queue(msg("job", "c"))
	r.release(g) // c has the lock now, and does not fetch it
	awaitStatus(t, store, "job", "release of a hold that was not fetched", isFree)
}

// A slowToNotice driver does not notice that a waiter is dead, and says which waiters are
// withdrawn.
type slowToNotice struct {
	*memlock.Driver
	withdrawn chan string // their ids in the store
}

func (d slowToNotice) Withdraw(_ context.Context, _, id string) error {
	d.withdrawn <- id
	return nil
}

// TestPlaceOfAnotherReplica checks that a client that comes to another replica leaves no place
// behind where others would wait for it, and that the places of others stay.
func TestPlaceOfAnotherReplica(t *testing.T) {
	store := new(memlock.Store)
	first := startReplica(t, store, Options{})
	d := slowToNotice{store.Open(), make(chan string, 10)}
	second := startReplicaOf(t, d, Options{})
	first.acquire(msg("job", "a"))
	b := msg("job", "b")
	first.queue(b)
	old := status(t, store, "job").Waiters[0].ID
	second.queue(msg("job", "c"))
	if n := len(d.withdrawn); n > 0 {
		t.Fatalf("%d places are withdrawn, and none was the client's", n)
	}
	third := startReplicaOf(t, slowToNotice{store.Open(), d.withdrawn}, Options{})
	third.queue(b)
	if got := len(d.withdrawn); got != 1 {
		t.Fatalf("%d places are withdrawn, want that of the client at the first replica", got)
	}
	if got := <-d.withdrawn; got != old {
		t.Errorf("the place of %q is withdrawn, want %q", got, old)
	}
	first.post(wire.PathWithdraw, wire.Lease{Name: "job", ID: longID("b")}, http.StatusNoContent)
}

// TestGrantWhileAway grants a lock between two requests of a client. The TTL counts from the
// second one, so the lease must not be older.
func TestGrantWhileAway(t *testing.T) {
	store := new(memlock.Store)
	r := startReplica(t, store, Options{})
	g := r.acquire(msg("job", "a"))
	r.queue(msg("job", "b"))
	r.release(g)
	awaitStatus(t, store, "job", "grant", func(st driver.Status) bool { return len(st.Holders) == 1 })
	age := 200 * time.Millisecond
	awaitStatus(t, store, "job", "older lease", func(st driver.Status) bool { return st.Holders[0].Held >= age })
	b := msg("job", "b")
	b.Wait = long
	sent := driver.Now()
	got := r.acquire(b)
	end := sent.Add(time.Duration(got.TTL) * time.Millisecond)
	if st := status(t, store, "job"); driver.Now().Add(st.Holders[0].Left).Before(end) {
		t.Errorf("the client relies on its hold for %v, and the store ends it after %v", end.Left(driver.Now()), st.Holders[0].Left)
	}
}

// TestSlowClock waits for a lock, as a client whose clock is as slow as it may be. The answer says
// no more of the wait than that clock saw, so the client does not rely on its hold for too long.
func TestSlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		s := newService(t, store, Options{})
		first := livetest.Acquire(t, store, driver.Request{Name: "job", ID: "a", TTL: time.Hour})
		const wait = 20 * time.Second
		time.AfterFunc(wait, func() { _ = first.Release(t.Context()) }) // otherwise nothing is granted
		w := post(t.Context(), s, wire.PathAcquire, `{"name":"job","wait_ms":30000}`)
		var got wire.Granted
		err := json.Unmarshal(w.Body.Bytes(), &got)
		if seen := wait - wait/driver.Drift; err != nil || got.Waited != seen.Milliseconds() {
			t.Errorf("the answer is %s, want that it waited for %v", w.Body, seen)
		}
	})
}

// TestHolderFails lets a replica fail to change the holder of a hold that a waiting client has got.
// Whatever the client is told to have, the other replica must know of.
func TestHolderFails(t *testing.T) {
	for _, effect := range []fault.Effect{fault.Fail, fault.Drop} {
		t.Run(fmt.Sprint("Effect=", effect), func(t *testing.T) {
			store := new(memlock.Store)
			plan := fault.Plan{Rules: []fault.Rule{{Op: fault.SetHolder, Call: 1, Effect: effect, Err: driver.ErrUnavailable}}}
			r1, r2 := startReplicaOf(t, fault.Wrap(store.Open(), plan), Options{}), startReplica(t, store, Options{})
			g := r1.acquire(msg("job", "a"))
			b := msg("job", "b")
			b.Label = "release 7"
			r1.queue(b)
			r1.release(g)
			b.Wait = long
			a := <-r1.start(t.Context(), wire.PathAcquire, b)
			if a != nil && a.status == http.StatusServiceUnavailable { // the client asks again
				a = <-r1.start(t.Context(), wire.PathAcquire, b)
			}
			got := r1.check(a, "the request that waited", http.StatusOK).granted
			r2.post(wire.PathRenew, wire.Renew{Lease: new(lease(got)), TTL: long}, http.StatusOK)
			if st := status(t, store, "job"); st.Holders[0].Holder != (driver.Holder{Label: "release 7"}) {
				t.Errorf("the hold is %+v, want its own holder, and none that is pending", st.Holders[0])
			}
			r2.release(got)
		})
	}
}

// TestAnswerLost repeats a request at another replica whose answer was lost. The client gets the
// hold that it has, and no second one, also if others wait at that replica for it to end.
func TestAnswerLost(t *testing.T) {
	for _, kind := range []wire.Acquire{{}, {Slots: 1}, {Shared: true}} {
		for _, waited := range []bool{false, true} {
			for _, behind := range []bool{false, true} {
				t.Run(fmt.Sprintf("Slots=%d,Shared=%t,Waited=%t,Behind=%t", kind.Slots, kind.Shared, waited, behind), func(t *testing.T) {
					answerLost(t, kind, waited, behind)
				})
			}
		}
	}
}

func answerLost(t *testing.T, kind wire.Acquire, waited, behind bool) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	exclusive := msg("job", "a")
	exclusive.Slots = kind.Slots
	m := msg("job", "b")
	m.Slots, m.Shared, m.Wait = kind.Slots, kind.Shared, long
	var first wire.Granted
	if waited {
		g := r1.acquire(exclusive)
		lost := r1.start(t.Context(), wire.PathAcquire, m)
		awaitStatus(t, store, "job", "waiter", func(st driver.Status) bool { return len(st.Waiters) == 1 })
		r1.release(g)
		first = r1.check(<-lost, "the request that waited", http.StatusOK).granted
	} else {
		first = r1.acquire(m)
	}
	if behind {
		exclusive.ID, exclusive.Wait = longID("c"), long
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r2.start(ctx, wire.PathAcquire, exclusive)
		awaitStatus(t, store, "job", "waiter", func(st driver.Status) bool { return len(st.Waiters) == 1 })
		m.Wait = 1 // it must not wait for itself
	}
	again := r2.acquire(m)
	if again.Token != first.Token || again.ID != first.ID {
		t.Errorf("the second answer is %+v, want %+v", again, first)
	}
	if st := status(t, store, "job"); len(st.Holders) != 1 {
		t.Errorf("the lock is %+v, want one holder", st)
	}
	r1.post(wire.PathRenew, wire.Renew{Lease: new(lease(first)), TTL: long}, http.StatusOK)
}

// TestGivenUpElsewhere repeats a request at another replica while the first one has a grant that
// the client has not fetched, and that it may give up. The client must not get that grant.
func TestGivenUpElsewhere(t *testing.T) {
	store := new(memlock.Store)
	r1 := startReplica(t, store, Options{limits: limits{placeTimeout: 500 * time.Millisecond}})
	r2 := startReplica(t, store, Options{})
	g := r1.acquire(msg("job", "a"))
	r1.queue(msg("job", "b"))
	r1.release(g)
	var abandoned uint64
	awaitStatus(t, store, "job", "grant", func(st driver.Status) bool {
		if len(st.Holders) == 1 {
			abandoned = st.Holders[0].Token
		}
		return len(st.Holders) == 1
	})
	b := msg("job", "b")
	b.Wait = long
	got := r2.acquire(b) // when the first replica has given its grant up
	if got.Token == abandoned {
		t.Errorf("replica 2 handed out the hold that replica 1 gives up")
	}
	awaitStatus(t, store, "job", "one holder", func(st driver.Status) bool { return len(st.Holders) == 1 && st.Holders[0].Token == got.Token })
}

// TestWithdrawn withdraws acquisitions in each state. Nothing is left of them.
func TestWithdrawn(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	m := msg("job", "b")
	withdraw := wire.Lease{Name: "job", ID: longID("b")}
	t.Run("Granted", func(t *testing.T) {
		r1.acquire(m)
		r1.post(wire.PathWithdraw, wire.Lease{Name: "job", ID: longID("c")}, http.StatusNoContent)
		if st := status(t, store, "job"); len(st.Holders) != 1 {
			t.Fatalf("the withdrawal of another acquisition ended the hold")
		}
		r2.post(wire.PathWithdraw, withdraw, http.StatusNoContent)
		if st := status(t, store, "job"); !isFree(st) {
			t.Errorf("the lock is %+v, want it free", st)
		}
	})
	t.Run("Late", func(t *testing.T) {
		r2.post(wire.PathAcquire, m, http.StatusGone)
		if st := status(t, store, "job"); !isFree(st) {
			t.Errorf("a request that came after its withdrawal left %+v", st)
		}
	})
	for _, place := range []int{0, 1} {
		t.Run(fmt.Sprint("Place", place), func(t *testing.T) {
			name := fmt.Sprint("job", place)
			g := r1.acquire(msg(name, "a"))
			if place == 1 {
				r1.queue(msg(name, "first"))
			}
			waits := msg(name, "b")
			waits.Wait = long
			waiting := r1.start(t.Context(), wire.PathAcquire, waits)
			livetest.Await(t, "place", func() error {
				if n := len(r1.service.waitersBehind(driver.Status{Name: name})); n != place+1 {
					return fmt.Errorf("%d wait", n)
				}
				return nil
			})
			r1.post(wire.PathWithdraw, wire.Lease{Name: name, ID: longID("b")}, http.StatusNoContent)
			r1.check(<-waiting, "the request that waited", http.StatusGone)
			r1.release(g)
			if place == 0 {
				awaitStatus(t, store, name, "free lock", isFree)
			}
		})
	}
}

// TestWithdrawalEnds uses an id again after it was withdrawn. For how long that is refused
// must not depend on how many others were withdrawn since.
func TestWithdrawalEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, memlock.New(), Options{})
		check := func(path, body string, want int) {
			t.Helper()
			if w := post(t.Context(), s, path, body); w.Code != want {
				t.Errorf("%s after %v = %d %s, want %d", path, withdrawalTimeout, w.Code, w.Body, want)
			}
		}
		const acquisition = `{"name": "job", "id": "a-------------------"}`
		check(wire.PathWithdraw, acquisition, http.StatusNoContent)
		time.Sleep(withdrawalTimeout)
		check(wire.PathAcquire, acquisition, http.StatusGone)
		time.Sleep(time.Nanosecond)
		check(wire.PathAcquire, acquisition, http.StatusOK)
	})
}

// TestHeldBeforeClientCameBack lets a client go before the store says that the lock is held. When
// it comes back, the lock is free, and it must get it.
func TestHeldBeforeClientCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		plan := fault.Plan{Rules: []fault.Rule{{Op: fault.Acquire, Call: 1, After: 2 * time.Second}}}
		s := newService(t, fault.Wrap(store, plan), Options{})
		g := livetest.Acquire(t, store, driver.Request{Name: "job", ID: "a", TTL: time.Hour})
		const acquire = `{"name": "job", "id": "b-------------------"}`
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		post(ctx, s, wire.PathAcquire, acquire)
		time.Sleep(2 * time.Second)
		if err := g.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := post(t.Context(), s, wire.PathAcquire, acquire); w.Code != http.StatusOK {
			t.Errorf("the client is answered %d %s, want 200", w.Code, w.Body)
		}
	})
}

// TestBackTooLate has a store hang for longer than the place of a client lasts that has gone. When
// the client comes back, it is answered by what the store says, and not at once, again and again.
func TestBackTooLate(t *testing.T) {
	for _, tt := range []struct {
		rule fault.Rule
		want int
	}{
		{fault.Rule{Op: fault.Acquire, Call: 1, Before: 5 * time.Second}, http.StatusOK},
		{fault.Rule{Op: fault.Acquire, Before: 5 * time.Second, Effect: fault.Fail, Err: driver.ErrUnavailable}, http.StatusServiceUnavailable},
	} {
		for _, wait := range []string{"", `, "wait_ms": 1`} {
			t.Run(fmt.Sprint(tt.want, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t, fault.Wrap(memlock.New(), fault.Plan{Rules: []fault.Rule{tt.rule}}), Options{})
					acquire := `{"name": "job", "id": "b-------------------"` + wait + `}`
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					post(ctx, s, wire.PathAcquire, acquire)
					time.Sleep(3500 * time.Millisecond)
					began := time.Now()
					w := post(t.Context(), s, wire.PathAcquire, acquire)
					if took := time.Since(began); w.Code != tt.want || took < 400*time.Millisecond {
						t.Errorf("the client is answered %d %s after %v, want %d", w.Code, w.Body, took, tt.want)
					}
				})
			})
		}
	}
}

// TestLostBeforeAnswer breaks a hold that is being confirmed for a client that has sent its request
// twice. It must get the lock, which is free.
func TestLostBeforeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		plan := fault.Plan{Rules: []fault.Rule{
			{Op: fault.Acquire, Call: 1, After: 2 * time.Second},
			{Op: fault.Renew, Call: 1, Before: 2 * time.Second},
		}}
		s := newService(t, fault.Wrap(store, plan), Options{})
		acquire := func() int {
			return post(t.Context(), s, wire.PathAcquire, `{"name": "job", "id": "b-------------------"}`).Code
		}
		go acquire()
		time.Sleep(time.Second)
		time.AfterFunc(2*time.Second, func() { // the lease is older than the second request, so it is being renewed
			st, err := store.Status(t.Context(), "job")
			if err == nil {
				err = store.Break(t.Context(), "job", st.Holders[0].ID)
			}
			if err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		if got := acquire(); got != http.StatusOK || time.Since(began) > 3*time.Second {
			t.Errorf("the second request is answered %d after %v, want %d within 3s", got, time.Since(began), http.StatusOK)
		}
	})
}

// TestGoneClientHasNoPlace lets a client go that does not wait, and whose lock is free. Its hold
// takes no place from those who wait, and its next request finds it.
func TestGoneClientHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := fault.Plan{Rules: []fault.Rule{{Op: fault.Acquire, Call: 1, After: 2 * time.Second}}}
		s := newService(t, fault.Wrap(memlock.New(), plan), Options{})
		const acquire = `{"name": "job", "id": "b-------------------"}`
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		post(ctx, s, wire.PathAcquire, acquire)
		time.Sleep(2 * time.Second)
		if got := s.Stats().Places; got != 0 {
			t.Errorf("the service has %d places, want none", got)
		}
		if w := post(t.Context(), s, wire.PathAcquire, acquire); w.Code != http.StatusOK {
			t.Errorf("the client is answered %d %s, want 200", w.Code, w.Body)
		}
	})
}

// TestGoneClientKeepsNothing grants a lock or the slots of a semaphore to clients that have gone
// meanwhile. They have done nothing, so neither TTL nor min_hold_ms may keep it from others.
func TestGoneClientKeepsNothing(t *testing.T) {
	for _, slots := range []int{0, 2} {
		t.Run(fmt.Sprint("Slots=", slots), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, clients := newService(t, memlock.New(), Options{}), max(1, slots)
				send := func(path, id, more string, want int) {
					t.Helper()
					message := fmt.Sprintf(`{"name": "job", "id": %q%s}`, longID(id), more)
					if w := post(t.Context(), s, path, message); w.Code != want {
						t.Errorf("%s for %s is answered %d %s, want %d", path, id, w.Code, w.Body, want)
					}
				}
				asks := fmt.Sprintf(`, "slots": %d, "ttl_ms": 3600000`, slots)
				for i := range clients {
					send(wire.PathAcquire, fmt.Sprint("holds", i), asks, http.StatusOK)
				}
				for i := range clients {
					send(wire.PathAcquire, fmt.Sprint("gone", i), asks+`, "wait_ms": 1, "min_hold_ms": 3600000`, http.StatusAccepted)
				}
				for i := range clients {
					send(wire.PathRelease, fmt.Sprint("holds", i), "", http.StatusNoContent)
				}
				for i := range clients {
					send(wire.PathAcquire, fmt.Sprint("next", i), asks+`, "wait_ms": 4000`, http.StatusOK)
				}
			})
		})
	}
}

// TestHolderFailsLate lets the change of a holder take until it fails. Meanwhile the client sends
// its request again, and may go for longer than its place lasts.
func TestHolderFailsLate(t *testing.T) {
	for _, goes := range []bool{false, true} {
		t.Run(fmt.Sprint("Goes=", goes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				plan := fault.Plan{Rules: []fault.Rule{{Op: fault.SetHolder, Call: 1, Effect: fault.Hang}}}
				s := newService(t, fault.Wrap(store, plan), Options{limits: limits{placeTimeout: time.Second}})
				g := livetest.Acquire(t, store, driver.Request{Name: "job", ID: "a", TTL: time.Hour})
				wait := func(ctx context.Context) int {
					return post(ctx, s, wire.PathAcquire, `{"name": "job", "id": "b-------------------", "wait_ms": 30000}`).Code
				}
				go wait(t.Context())
				synctest.Wait()
				if err := g.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				began, timeout, want := time.Now(), time.Minute, http.StatusOK
				if goes {
					timeout, want = time.Second, http.StatusServiceUnavailable
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				if got := wait(ctx); got != want || time.Since(began) > driver.AnswerTimeout {
					t.Errorf("the second request is answered %d after %v, want %d within %v", got, time.Since(began), want, driver.AnswerTimeout)
				}
				time.Sleep(time.Minute)
				if got := s.Stats(); got != (Stats{StoreUp: true}) {
					t.Errorf("the service has %+v, want nothing", got)
				}
			})
		})
	}
}

// TestWithdrawnBehindBalancer withdraws an acquisition at a replica that has a place for it, while
// another replica has granted it to a repetition of the request. Nothing is left of either.
func TestWithdrawnBehindBalancer(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	semaphore := func(id string) wire.Acquire {
		m := msg("job", id)
		m.Slots = 2
		return m
	}
	holders := []wire.Granted{r1.acquire(semaphore("a")), r1.acquire(semaphore("c"))}
	r1.queue(semaphore("b"))
	for _, g := range holders {
		r1.release(g)
	}
	awaitStatus(t, store, "job", "grant to the place", func(st driver.Status) bool { return len(st.Holders) == 1 })
	r2.acquire(semaphore("b"))
	r1.post(wire.PathWithdraw, wire.Lease{Name: "job", ID: longID("b")}, http.StatusNoContent)
	if st := status(t, store, "job"); !isFree(st) {
		t.Errorf("the lock is %+v, want it free", st)
	}
}

// TestOneWaiterInTheStore has many clients wait for one name. They are served in the order of
// their arrival.
func TestOneWaiterInTheStore(t *testing.T) {
	store := new(memlock.Store)
	r := startReplica(t, store, Options{})
	g := r.acquire(msg("job", "a"))
	const clients = 30
	var waiting []<-chan *answer
	for i := range clients {
		m := msg("job", fmt.Sprint("b", i))
		m.Wait = long
		waiting = append(waiting, r.start(t.Context(), wire.PathAcquire, m))
		livetest.Await(t, "place", func() error {
			if n := len(r.service.waitersBehind(driver.Status{Name: "job"})); n != i+1 {
				return fmt.Errorf("%d wait", n)
			}
			return nil
		})
	}
	if st := status(t, store, "job"); len(st.Waiters) != 1 {
		t.Errorf("%d wait in the store, want 1", len(st.Waiters))
	}
	for i := range clients {
		r.release(g)
		g = r.check(<-waiting[i], fmt.Sprint("client ", i), http.StatusOK).granted
	}
}

// TestDrain ends a replica. Its clients go on at another one.
func TestDrain(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	g := r1.acquire(msg("job", "a"))
	waits := msg("job", "b")
	waits.Wait = long
	waiting := r1.start(t.Context(), wire.PathAcquire, waits)
	awaitStatus(t, store, "job", "waiter", func(st driver.Status) bool { return len(st.Waiters) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	if err := r1.service.Drain(ctx); err != nil {
		t.Errorf("Drain = %v", err)
	}
	r1.check(<-waiting, "the request that waited", http.StatusAccepted)
	r1.post(wire.PathAcquire, msg("other", "c"), http.StatusServiceUnavailable)
	r1.check(r1.send(t.Context(), http.MethodGet, wire.PathReady, "", ""), wire.PathReady, http.StatusServiceUnavailable)
	r1.get(wire.PathHealth)
	if st := status(t, store, "job"); len(st.Holders) != 1 || len(st.Waiters) != 0 {
		t.Errorf("the lock is %+v, want its holder and no waiter", st)
	}
	r2.post(wire.PathRenew, wire.Renew{Lease: new(lease(g)), TTL: long}, http.StatusOK)
	r2.release(g)
}

// TestDrainUntold ends a replica whose store has not said yet whether the lock is held. A request
// that does not wait, and has found the place of one that did, is not told that it is.
func TestDrainUntold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fault.Rule{Op: fault.Acquire, Call: 1, Before: time.Second}
		s := newService(t, fault.Wrap(memlock.New(), fault.Plan{Rules: []fault.Rule{slow}}), Options{})
		ctx, leave := context.WithCancel(t.Context())
		go post(ctx, s, wire.PathAcquire, `{"name": "job", "id": "b-------------------", "wait_ms": 1}`)
		synctest.Wait()
		leave()
		synctest.Wait()
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			answer <- post(t.Context(), s, wire.PathAcquire, `{"name": "job", "id": "b-------------------"}`)
		}()
		synctest.Wait()
		if err := s.Drain(t.Context()); err != nil {
			t.Errorf("Drain = %v", err)
		}
		w := <-answer
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), wire.ProblemDraining) {
			t.Errorf("the client is answered %d %s, want that the replica shuts down", w.Code, w.Body)
		}
	})
}

// TestRepeatedPoll sends a request again while the first one waits: the client has lost that
// connection. The later one gets the lock.
func TestRepeatedPoll(t *testing.T) {
	store := new(memlock.Store)
	r := startReplica(t, store, Options{})
	g := r.acquire(msg("job", "a"))
	m := msg("job", "b")
	m.Wait = long
	first := r.start(t.Context(), wire.PathAcquire, m)
	awaitStatus(t, store, "job", "waiter", func(st driver.Status) bool { return len(st.Waiters) == 1 })
	second := r.start(t.Context(), wire.PathAcquire, m)
	if got := r.check(<-first, "the first request", http.StatusConflict); got.problem.Kind() != wire.ProblemRepeated {
		t.Errorf("the problem is %q", got.problem.Kind())
	}
	r.release(g)
	r.check(<-second, "the second request", http.StatusOK)
}

// TestPlacesAreBounded checks that places count whose clients are between two requests, and not
// acquisitions that don't wait.
func TestPlacesAreBounded(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{limits: limits{places: 2, placeTimeout: time.Hour}})
	r.service.mu.Lock()
	r.service.newPlaceLocked(placeKey{"free", longID("slow")}, "", driver.Request{}, false)
	r.service.mu.Unlock()
	r.acquire(msg("job", "a"))
	r.queue(msg("job", "b"))
	r.queue(msg("job", "c"))
	d := msg("job", "d")
	d.Wait = 1
	if a := r.post(wire.PathAcquire, d, http.StatusTooManyRequests); a.problem.Kind() != wire.ProblemQuota {
		t.Errorf("a third place is refused with %+v, want %s", a.problem, wire.ProblemQuota)
	}
	r.acquire(msg("free", "d")) // it needs no place
	r.queue(msg("job", "b"))    // it has one
	r.post(wire.PathWithdraw, wire.Lease{Name: "job", ID: longID("c")}, http.StatusNoContent)
	r.queue(msg("job", "d"))
}

// TestPlacesOfNamespaces checks that the waiters of one namespace leave places for others.
func TestPlacesOfNamespaces(t *testing.T) {
	store, access := new(memlock.Store), &testAccess{prefix: "evil/"}
	r := startReplica(t, store, Options{limits: limits{places: 4, placeTimeout: time.Hour}, Access: access})
	r.acquire(msg("job", "a"))
	r.queue(msg("job", "b"))
	r.queue(msg("job", "c"))
	d := msg("job", "d")
	d.Wait = 1
	r.post(wire.PathAcquire, d, http.StatusTooManyRequests)
	access.prefix = "good/"
	r.acquire(msg("job", "a"))
	r.queue(msg("job", "b"))
	access.prefix = "" // whoever has no namespace may have all that is free
	r.acquire(msg("job", "a"))
	r.queue(msg("job", "b"))
	r.post(wire.PathAcquire, d, http.StatusTooManyRequests)
}

// TestWithdrawalsAreBounded checks that clients can't fill the memory with withdrawals.
func TestWithdrawalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w withdrawals
		for i := range maxWithdrawals + 10 {
			w.add(placeKey{"job", fmt.Sprint(i)})
		}
		last := placeKey{"job", fmt.Sprint(maxWithdrawals + 9)}
		if len(w.at) > maxWithdrawals || !w.has(last) || w.has(placeKey{"job", "0"}) {
			t.Errorf("%d withdrawals are kept, want the last %d", len(w.at), maxWithdrawals)
		}
		time.Sleep(withdrawalTimeout + time.Second)
		w.add(last)
		if len(w.at) != 1 || !w.has(last) {
			t.Errorf("%d withdrawals are kept, want the one that is not old", len(w.at))
		}
	})
}
