package trial

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
)

// TestPlan checks that plans survive being written and read, and that a seed makes one plan.
func TestPlan(t *testing.T) {
	c := Target{Store: Redis}
	plan := newPlan(c, faults(), 7)
	if len(plan) != faultsPerTrial || !slices.Equal(plan, newPlan(c, faults(), 7)) ||
		slices.Equal(plan, newPlan(c, faults(), 8)) {
		t.Errorf("the plans of seeds 7, 7 and 8 are %v, %v and %v", plan, newPlan(c, faults(), 7), newPlan(c, faults(), 8))
	}
	if got, err := ParsePlan(FormatPlan(plan)); err != nil || !slices.Equal(got, plan) {
		t.Errorf("ParsePlan(%q) = %v, %v", FormatPlan(plan), got, err)
	}
	for text, want := range map[string]string{
		"":                "is not FAULT:CLIENT:NUMBER",
		"pause:A":         "is not FAULT:CLIENT:NUMBER",
		"rain:A:1":        `no fault "rain"`,
		"pause:D:1":       `no client "D"`,
		"pause:A:x":       "its number is not one",
		"pause:A:1,cut:B": `step "cut:B"`,
	} {
		if _, err := ParsePlan(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePlan(%q) = %v, want an error with %q", text, err, want)
		}
	}
	if err := checkPlan(Target{Store: File}, []Step{{"cut", "A", 1}}); err == nil {
		t.Error("a plan that cuts the network of a file is accepted")
	}
}

// TestShrink checks that the steps that matter stay in a plan, and no others.
func TestShrink(t *testing.T) {
	steps := []Step{{"pause", "A", 1}, {"cut", "B", 2}, {"kill", "C", 3}, {"crash", "A", 4}}
	for _, need := range [][]Step{{steps[1]}, {steps[0], steps[3]}, steps} {
		o := Outcome{Result: judge.Result{Blocked: true}, Plan: steps}
		tries := 0
		err := o.shrink(t.Context(), func(plan []Step) (judge.Result, error) {
			tries++
			all := !slices.ContainsFunc(need, func(s Step) bool { return !slices.Contains(plan, s) })
			// A failure that is rare, as it depends on when processes run, shows in the third
			// trial.
			return judge.Result{Blocked: all && tries%shrinkTries == 0}, nil
		})
		if err != nil || !slices.Equal(o.Plan, need) {
			t.Errorf("the smallest plan is %v (%v), want %v", o.Plan, err, need)
		}
	}
	o, failure := Outcome{Plan: steps}, errors.New("no")
	fails := func([]Step) (judge.Result, error) { return judge.Result{}, failure }
	if err := o.shrink(t.Context(), fails); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}
}

// TestAwaitGrant checks how long the judge waits for a grant that comes after the last fault.
func TestAwaitGrant(t *testing.T) {
	const healed = 10
	tests := []struct {
		name   string
		came   int64         // when a grant came
		logged time.Duration // after how much of the wait it was recorded
		want   time.Duration
	}{
		{"Soon", healed + 1, time.Second, time.Second},
		{"Late", healed + 1, time.Minute, bound},
		{"BeforeTheWait", healed + 1, 0, 0},
		{"CameBefore", healed - 1, 0, bound},
		{"CameBeforeAndIsRecordedLater", healed - 1, time.Second, bound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &trial{began: driver.Now().Add(-time.Second), store: &store{}}
				grant := func() { b.log(history.Event{At: tt.came, Kind: history.Acquired}) }
				if tt.logged == 0 {
					grant()
				} else {
					timer := time.AfterFunc(tt.logged, grant)
					defer timer.Stop()
				}
				began := time.Now()
				waited := b.awaitGrant(t.Context(), healed, bound)
				if got := time.Since(began); got < tt.want || got > tt.want+time.Second {
					t.Errorf("it waits %v, want %v", got, tt.want)
				}
				if real := time.Duration(b.now() - healed); waited <= 0 || waited > real {
					t.Errorf("it says that it has waited %v of %v", waited, real)
				}
			})
		})
	}
}

// TestLetEnds checks that the director does not wait for a client that has ended with the run.
func TestLetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b := &trial{}
		c := b.newClient(0, "A")
		for range 3 {
			b.let(ctx, c, variant{}) // nobody takes the first
		}
	})
}
