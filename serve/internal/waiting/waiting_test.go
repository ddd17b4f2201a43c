package waiting

import (
	"fmt"
	"slices"
	"testing"
)

// TestOn checks what TestAll and TestModel do not see.
func TestOn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		state State
		event Event
		phase Phase
		do    []Action
	}{
		{"LostBeforeConfirmed", State{Phase: Confirming, Waits: true, Polled: true}, GrantLost, Queued, []Action{Requeue}},
		{"Repeated", State{Phase: Asking, Waits: true, Polled: true}, PollCame, Asking, []Action{StopTimer}},
		{"WithdrawnInQueue", State{Waits: true, Polled: true}, ClientWithdrew, Ended, []Action{Cancel, StopTimer, AnswerWithdrawn, Dequeue, End}},
		{"DrainOfOneThatDoesNotWait", State{Phase: Asking, Polled: true}, ServiceEnds, Asking, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, do := tt.state.On(tt.event)
			if got.Phase != tt.phase || !slices.Equal(do, tt.do) {
				t.Errorf("phase %d and actions %v, want %d and %v", got.Phase, do, tt.phase, tt.do)
			}
		})
	}
}

// A world is a State with what surrounds it: the timer, the work that was begun, and the grant in
// the store.
type world struct {
	State

	timer   bool
	working Action // Ask, Confirm or Release; End: nothing
	grant   bool   // the store has granted the lock, and nobody has released it or been told
}

// may reports whether an event can happen.
func (w world) may(e Event) bool {
	switch e {
	case Turn:
		return w.Phase == Queued
	case PollCame, ServiceEnds, ClientWithdrew:
		return w.Phase < Releasing // then the service has forgotten the place
	case PollOver, PollGone:
		return w.Polled
	case StoreTold:
		return w.Phase <= Asking
	case StoreGranted, StoreFailed:
		return w.working == Ask
	case StorePromised:
		return w.working == Ask && w.Waits
	case Confirmed, ConfirmFailed, GrantLost:
		return w.working == Confirm
	case Released:
		return w.working == Release
	case ClientGone:
		return w.timer
	}
	return false
}

// on takes an event in, and reports what must not happen.
func (w world) on(e Event) (next world, wrong string) {
	next = w
	var do []Action
	next.State, do = w.State.On(e)
	switch e {
	case StoreGranted, StorePromised:
		next.working, next.grant = End, true
	case GrantLost, Released:
		next.working, next.grant = End, false
	case StoreFailed, Confirmed, ConfirmFailed:
		next.working = End
	case ClientGone:
		next.timer = false
	}
	open := w.Polled && e != PollGone // a request that needs an answer
	for _, a := range do {
		switch a {
		case Ask, Confirm, Release:
			if next.working != End {
				return next, "two works at a time"
			}
			next.working = a
		case StartTimer:
			next.timer = true
		case StopTimer:
			next.timer = false
		case End:
			next.timer = false
		case AnswerGrant, AnswerError, AnswerQueued, AnswerWithdrawn:
			if !open && e != PollCame {
				return next, "an answer to nobody"
			}
			open = false
			if a == AnswerGrant {
				if e != Confirmed || w.GaveUp == Withdrawn || w.Again {
					return next, "an answer with a grant that is not confirmed, or withdrawn"
				}
				next.grant = false
			}
		}
	}
	switch ended := next.Phase == Ended; {
	case ended != slices.Contains(do, End):
		return next, "End is not where it ends"
	case open && !next.Polled:
		return next, "a request without an answer"
	case ended && next.working != End:
		return next, "an end while something is under way"
	case next.Phase == Granted && !next.timer:
		return next, "a grant that is kept for nobody, without an end"
	case ended && next.grant && (!next.Final || next.GaveUp == Withdrawn):
		return next, "an end that leaves a grant which no client may get"
	case next.Phase < Releasing && next.GaveUp == Wanted && !next.Polled && !next.timer:
		return next, "nobody waits, and no timer ends it"
	case next.Polled && next.Over && next.Told && next.Waits && next.Phase <= Asking:
		return next, "a request that is over, and waits on"
	case next.Phase != Queued && !ended && next.Phase != Granted && next.working == End:
		return next, "nothing is under way that goes on"
	}
	return next, ""
}

// TestAll goes through all states that events can lead to, from an acquisition that waits and from
// one that does not.
func TestAll(t *testing.T) {
	seen := map[world]string{}
	var todo []world
	add := func(w world, how string) {
		if _, ok := seen[w]; !ok {
			seen[w] = how
			todo = append(todo, w)
		}
	}
	add(world{State: State{Waits: true, Polled: true}, working: End}, "a place in a queue")
	add(world{State: State{Phase: Asking, Polled: true}, working: Ask}, "a request that does not wait")
	ended := 0
	for len(todo) > 0 {
		w := todo[0]
		todo = todo[1:]
		if w.Phase == Ended {
			ended++
			continue
		}
		for e := Turn; e <= ClientWithdrew; e++ {
			if !w.may(e) {
				continue
			}
			next, wrong := w.on(e)
			how := fmt.Sprintf("%s, %d", seen[w], e)
			if wrong != "" {
				t.Fatalf("%s: after the events %s: %+v", wrong, how, next)
			}
			add(next, how)
		}
	}
	if len(seen) < 100 || ended == 0 {
		t.Errorf("%d states, %d of them ends: the test does not go through them", len(seen), ended)
	}
	t.Logf("%d states", len(seen))
}
