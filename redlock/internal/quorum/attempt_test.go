package quorum_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// An event happens to an attempt at now. It returns the resulting step.
type event func(a *quorum.Attempt, now driver.Instant) quorum.Step

func granted(node int, counter uint64) event {
	return func(a *quorum.Attempt, now driver.Instant) quorum.Step { return a.Granted(node, counter, now) }
}

func raised(node int) event {
	return func(a *quorum.Attempt, now driver.Instant) quorum.Step { return a.Raised(node, now) }
}

func refused(node int) event {
	return func(a *quorum.Attempt, now driver.Instant) quorum.Step { return a.Refused(node, now) }
}

// These are the steps that tests expect.
var open = quorum.Step{}

func raise(target uint64, nodes ...int) quorum.Step {
	return quorum.Step{Raise: set(nodes...), Target: target}
}
func won(target uint64) quorum.Step { return quorum.Step{Verdict: quorum.Won, Target: target} }
func failed(target uint64) quorum.Step {
	return quorum.Step{Verdict: quorum.Failed, Target: target}
}

// A testStep is an event at a time after the attempt began, with the step that it must yield.
type testStep struct {
	do   event
	want quorum.Step
	at   time.Duration
}

func TestAttempt(t *testing.T) {
	const ttl = time.Second
	valid := quorum.Validity(ttl)
	tests := []struct {
		name  string
		nodes int
		steps []testStep
	}{
		{"AgreedAtOnce", 5, []testStep{{do: granted(0, 7), want: open}, {do: granted(3, 7), want: open},
			{do: granted(4, 7), want: won(7)}}},
		{"NoMajority", 5, []testStep{{do: granted(0, 7), want: open}, {do: granted(3, 7), want: open}}},
		{"BehindIsRaised", 3, []testStep{
			{do: granted(0, 5), want: open},
			// The greatest of the replies is not a token yet.
			{do: granted(1, 9), want: raise(9, 0)},
			{do: raised(0), want: won(9)},
		}},
		{"LateGrantAgrees", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: granted(2, 9), want: won(9)},
		}},
		{"LateGrantIsBehind", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: granted(2, 4), want: raise(9, 2)}, // node 0 was asked already
			{do: raised(2), want: won(9)},
		}},
		{"LateGrantIsAhead", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: granted(2, 10), want: raise(9)}, // can't be lowered; the target stays
			{do: raised(0), want: won(9)},
		}},
		{"AheadIsRefused", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: granted(2, 10), want: raise(9)},
			{do: refused(0), want: failed(9)}, // only one of the three has 9, or can have it
		}},
		{"TargetIsTheGreatestSoFar", 5, []testStep{
			{do: granted(0, 9), want: open},
			{do: granted(1, 7), want: open},
			{do: granted(2, 7), want: raise(9, 1, 2)},
			{do: raised(2), want: raise(9)},
			{do: raised(1), want: won(9)},
		}},
		{"RaiseOfAMajorityIsEnough", 5, []testStep{
			{do: granted(0, 1), want: open},
			{do: granted(1, 2), want: open},
			{do: granted(2, 3), want: raise(3, 0, 1)},
			{do: raised(0), want: raise(3)},
			{do: refused(1), want: raise(3)},
			{do: granted(4, 3), want: won(3)},
		}},
		{"RaisedTwiceCountsOnce", 5, []testStep{
			{do: granted(0, 1), want: open},
			{do: granted(1, 2), want: open},
			{do: granted(2, 3), want: raise(3, 0, 1)},
			{do: raised(0), want: raise(3)},
			{do: raised(0), want: raise(3)},
		}},
		{"RaisedUnasked", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: granted(2, 12), want: raise(9)},
			{do: raised(2), want: raise(9)}, // answers nothing that was asked
		}},
		{"GrantedTwiceCountsOnce", 3, []testStep{{do: granted(0, 7), want: open}, {do: granted(0, 7), want: open},
			{do: granted(0, 9), want: open}}},
		{"RepeatedGrantTellsTheFirstCounter", 3, []testStep{
			{do: granted(0, 7), want: open},
			{do: granted(0, 9), want: open}, // another attempt had it in between
			{do: granted(1, 9), want: raise(9, 0)},
		}},
		{"RefusedByAMajority", 5, []testStep{{do: refused(0), want: open}, {do: refused(1), want: open},
			{do: granted(2, 7), want: open}, {do: refused(3), want: failed(0)}}},
		{"RefusedTwiceCountsOnce", 5, []testStep{{do: refused(0), want: open}, {do: refused(0), want: open},
			{do: refused(0), want: open}}},
		{"OverdueAndThenGranted", 3, []testStep{
			{do: refused(0), want: open},
			{do: granted(0, 7), want: open}, // it was only late
			{do: refused(1), want: open},
			{do: granted(2, 7), want: won(7)},
		}},
		{"GrantedAndThenOverdue", 3, []testStep{
			{do: granted(0, 7), want: open},
			{do: refused(0), want: open}, // it has granted nevertheless
			{do: refused(1), want: open},
			{do: granted(2, 7), want: won(7)},
		}},
		{"RaiseRefused", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: refused(0), want: raise(9)}, // the third node may help
			{do: refused(2), want: failed(9)},
		}},
		{"RaiseOverdueAndThenDone", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: refused(0), want: raise(9)},
			{do: raised(0), want: won(9)},
		}},
		{"JustInTime", 3, []testStep{{do: granted(0, 7), want: open}, {do: granted(1, 7), want: won(7), at: valid - 1}}},
		{"Late", 3, []testStep{{do: granted(0, 7), want: open}, {do: granted(1, 7), want: failed(7), at: valid}}},
		{"RaisedLate", 3, []testStep{
			{do: granted(0, 5), want: open},
			{do: granted(1, 9), want: raise(9, 0)},
			{do: raised(0), want: failed(9), at: valid},
		}},
		{"Expired", 3, []testStep{{do: granted(0, 7), want: open}, {do: refused(0), want: open, at: valid - 1},
			{do: refused(0), want: failed(0), at: valid}}},
		{"WonStaysWon", 3, []testStep{
			{do: granted(0, 7), want: open},
			{do: granted(1, 7), want: won(7)},
			{do: granted(2, 9), want: won(7)},
			{do: refused(2), want: won(7)},
			{do: refused(1), want: won(7), at: valid},
		}},
		{"FailedStaysFailed", 3, []testStep{
			{do: refused(0), want: open},
			{do: refused(1), want: failed(0)},
			{do: granted(0, 7), want: failed(0)},
			{do: granted(1, 7), want: failed(0)},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := nodes(tt.nodes).Attempt(at(0), ttl)
			runSteps(t, &a, tt.steps)
		})
	}
}

func runSteps(t *testing.T, a *quorum.Attempt, steps []testStep) {
	t.Helper()
	for i, step := range steps {
		if got := step.do(a, at(step.at)); got != step.want {
			t.Fatalf("after event %d: %+v, want %+v", i, got, step.want)
		}
	}
}
