package access

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/serve"
)

// A fakeStore lists holds by name.
type fakeStore map[string]driver.Holding

func (s fakeStore) list(_ context.Context, _ string, yield func(driver.Status) bool) error {
	for name, h := range s {
		if !yield(driver.Status{Name: name, Holders: []driver.Holding{h}}) {
			return nil
		}
	}
	return nil
}

// idOf names the hold with the id "1" of a lock.
func idOf(name string) holdID { return newHoldID(name, "1") }

func exceeded(t *testing.T, err error, what string) {
	t.Helper()
	var e *ExceededError
	if !errors.As(err, &e) || e.What != what {
		t.Errorf("error = %v, want that of %s", err, what)
	}
}

func TestQuotaOfLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := fakeStore{"other": {ID: "replica 2"}}
		m := newMeter("", Quota{Locks: 3}, store.list)
		a, b, c := idOf("a"), idOf("b"), idOf("c")
		for _, id := range []holdID{a, b} {
			if err := m.admit(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		// Both were admitted before either was granted; a third one was, too, and is granted last.
		for _, id := range []holdID{a, b} {
			if err := m.granted(id, time.Now()); err != nil {
				t.Errorf("granted: %v, want nil: there are three holds with that of the other replica", err)
			}
		}
		exceeded(t, m.granted(c, time.Now()), "locks")
		exceeded(t, m.admit(ctx, c), "locks")
		if err := m.admit(ctx, a); err != nil {
			t.Errorf("the client of a hold asks again: %v, want nil", err)
		}

		m.released(a)
		if err := m.admit(ctx, c); err != nil {
			t.Errorf("after a release: %v, want nil", err)
		}

		// The store has neither of ours: their leases have ended. The next survey finds that out.
		time.Sleep(surveyInterval)
		if err := m.admit(ctx, c); err != nil {
			t.Error(err)
		}
		if got := len(m.holds); got != 1 {
			t.Errorf("the survey counts %d holds, want 1", got)
		}
	})
}

// TestSurveyKeepsWhatHappensMeanwhile checks that a survey neither forgets a hold that was
// granted while it ran, nor counts one that was released.
func TestSurveyKeepsWhatHappensMeanwhile(t *testing.T) {
	var m *meter
	old, fresh := idOf("old"), idOf("fresh")
	m = newMeter("", Quota{Locks: 5}, func(_ context.Context, _ string, yield func(driver.Status) bool) error {
		yield(driver.Status{Name: "old", Holders: []driver.Holding{{ID: "1", Token: 1}}})
		m.released(old)
		return m.granted(fresh, time.Now())
	})
	if err := m.admit(t.Context(), idOf("next")); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.holds[fresh]; !ok || len(m.holds) != 1 {
		t.Errorf("the count has %d holds, want only the one that was granted meanwhile", len(m.holds))
	}
}

func TestQuotaOfHoldTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// This store does not know how old our hold is.
		store := fakeStore{"ours": {ID: "1", Token: 1}, "theirs": {ID: "1", Token: 1, Held: 50 * time.Minute}}
		m := newMeter("", Quota{MaxHold: time.Hour}, store.list)
		ours, theirs := idOf("ours"), idOf("theirs")
		if err := m.granted(ours, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, id := range []holdID{ours, theirs} {
			if err := m.renew(t.Context(), id, time.Now()); err != nil {
				t.Errorf("renewal of a young hold: %v", err)
			}
		}
		time.Sleep(10 * time.Minute)
		exceeded(t, m.renew(t.Context(), theirs, time.Now()), "max-hold")
		if err := m.renew(t.Context(), ours, time.Now()); err != nil {
			t.Errorf("renewal after 10 minutes: %v", err)
		}
		time.Sleep(50 * time.Minute)
		exceeded(t, m.renew(t.Context(), ours, time.Now()), "max-hold")
	})
}

// TestQuotaOfWaiters checks that an acquisition counts until it can't have a place any more.
func TestQuotaOfWaiters(t *testing.T) {
	const place = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		m := newMeter("", Quota{Waiters: 1}, fakeStore{}.list)
		one, other := newHoldID("a", "x"), newHoldID("a", "y")
		wait := func(id holdID) func(serve.Outcome) {
			t.Helper()
			done, err := m.wait(id, true, place)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		refused := func() {
			t.Helper()
			time.Sleep(place - 1)
			_, err := m.wait(other, true, place)
			exceeded(t, err, "waiters")
		}
		queued, granted := serve.Outcome{Err: driver.ErrHeld}, serve.Outcome{Token: 1}

		first := wait(one)
		refused()
		repeated := wait(one) // the client sends its request again
		first(queued)
		refused()
		refused() // place after the first request, the other one still waits
		repeated(queued)
		refused()
		wait(one)(queued) // it comes back in time
		refused()
		time.Sleep(2 * time.Nanosecond)
		wait(other)(granted)
		wait(one)(queued)
		m.withdrawn(one)
		wait(other)(granted)
	})
}

func TestQuotaOfRequests(t *testing.T) {
	m := newMeter("", Quota{Requests: 2, MaxTTL: time.Minute}, fakeStore{}.list)
	now := time.Now()
	for range 4 {
		if err := m.request(now); err != nil {
			t.Fatal(err)
		}
	}
	err := m.request(now)
	exceeded(t, err, "requests")
	var e *ExceededError
	if errors.As(err, &e) && e.RetryAfter != 500*time.Millisecond {
		t.Errorf("Retry-After is %v, want 500ms", e.RetryAfter)
	}
	if err := m.request(now.Add(e.RetryAfter)); err != nil {
		t.Errorf("after Retry-After: %v", err)
	}

	exceeded(t, m.lease(serve.Action{TTL: 2 * time.Minute}), "max-ttl")
	exceeded(t, m.lease(serve.Action{TTL: time.Second, MinHold: 2 * time.Minute}), "max-ttl")
	if err := m.lease(serve.Action{TTL: time.Minute, MinHold: time.Minute}); err != nil {
		t.Error(err)
	}
}

// TestSurveyFails checks that a store that does not answer is not taken for an empty one.
func TestSurveyFails(t *testing.T) {
	down := fmt.Errorf("%w: down", driver.ErrUnavailable)
	m := newMeter("", Quota{Locks: 1}, func(context.Context, string, func(driver.Status) bool) error { return down })
	for range 2 {
		if err := m.admit(t.Context(), idOf("a")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("error = %v, want ErrUnavailable", err)
		}
	}
}

// TestSlowSurvey lets the store take longer for a list than clients wait. They are told in time,
// and once the list is complete it counts.
func TestSlowSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter("", Quota{Locks: 1}, func(ctx context.Context, _ string, _ func(driver.Status) bool) error {
			select {
			case <-time.After(2*driver.AnswerTimeout - time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		began := time.Now()
		err := m.admit(t.Context(), idOf("a"))
		if !errors.Is(err, driver.ErrUnavailable) || time.Since(began) != driver.AnswerTimeout {
			t.Errorf("admit = %v after %v, want ErrUnavailable after %v", err, time.Since(began), driver.AnswerTimeout)
		}
		ctx, cancel := context.WithTimeout(t.Context(), driver.AnswerTimeout)
		defer cancel()
		if err := m.admit(ctx, idOf("a")); err != nil {
			t.Errorf("admit of the next client = %v, want nil", err)
		}
	})
}
