package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
)

// A Step is one fault of a trial. Its number chooses what is random about it.
type Step struct {
	Fault  string
	Client string // A, B or C
	Number uint32
}

// String returns the step as [ParsePlan] takes it.
func (s Step) String() string { return fmt.Sprintf("%s:%s:%d", s.Fault, s.Client, s.Number) }

// FormatPlan returns a plan as [ParsePlan] takes it.
func FormatPlan(plan []Step) string {
	texts := make([]string, len(plan))
	for i, s := range plan {
		texts[i] = s.String()
	}
	return strings.Join(texts, ",")
}

// ParsePlan parses steps, which are parted by commas, such as pause:A:17,cut:B:4.
func ParsePlan(text string) ([]Step, error) {
	var plan []Step
	for part := range strings.SplitSeq(text, ",") {
		f := strings.Split(part, ":")
		if len(f) != 3 {
			return nil, fmt.Errorf("step %q is not FAULT:CLIENT:NUMBER", part)
		}
		number, err := strconv.ParseUint(f[2], 10, 32)
		switch {
		case !slices.ContainsFunc(faults(), func(known fault) bool { return known.name == f[0] }):
			return nil, fmt.Errorf("there is no fault %q", f[0])
		case !slices.Contains(names[:], f[1]):
			return nil, fmt.Errorf("there is no client %q; there are %s", f[1], strings.Join(names[:], ", "))
		case err != nil:
			return nil, fmt.Errorf("step %q: its number is not one from 0 to 4294967295", part)
		}
		plan = append(plan, Step{f[0], f[1], uint32(number)})
	}
	return plan, nil
}

// CheckFaults returns why a target can't have some faults, nil for all, or those of a plan. It
// returns nil if the target can have all of the plan, and one of the faults at least.
func CheckFaults(c Target, only []string, plan []Step) error {
	if _, err := faultsFor(c, only); err != nil {
		return err
	}
	return checkPlan(c, plan)
}

// checkPlan checks that a target can have the faults of a plan.
func checkPlan(c Target, plan []Step) error {
	for _, s := range plan {
		i := slices.IndexFunc(faults(), func(f fault) bool { return f.name == s.Fault })
		if !faults()[i].fits(c) {
			return fmt.Errorf("%s can't have the fault %s of the plan, which needs %s", c.Name, s.Fault, faults()[i].needs)
		}
	}
	return nil
}

// newPlan chooses the faults of a trial by its seed.
func newPlan(c Target, among []fault, seed uint64) []Step {
	n := faultsPerTrial
	if c.IsControl() {
		n = controlFaults
	}
	if len(among) == 0 { // the work itself is the schedule
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	plan := make([]Step, n)
	for i := range plan {
		plan[i] = Step{among[rng.IntN(len(among))].name, names[rng.IntN(len(names))], rng.Uint32()}
	}
	return plan
}

// shrinkTries is how often a smaller plan is tried: a plan does not fix when processes run.
const shrinkTries = 3

// shrinkTime is how long the lab searches for a smaller plan.
const shrinkTime = time.Minute

// shrink drops one fault after the other from the plan of the decisive trial, as long as the trial
// still gets the verdict.
func (o *Outcome) shrink(ctx context.Context, try func(plan []Step) (judge.Result, error)) error {
	verdict, end := o.Verdict(), time.Now().Add(shrinkTime)
	for i := len(o.Plan) - 1; i >= 0 && len(o.Plan) > 1; i-- {
		smaller := slices.Delete(slices.Clone(o.Plan), i, i+1)
		for range shrinkTries {
			if time.Now().After(end) || ctx.Err() != nil {
				return nil //nolint:nilerr // the smallest plan so far is good enough
			}
			result, err := try(smaller)
			if err != nil {
				return err
			}
			if result.Verdict() == verdict {
				o.Plan, o.Evidence = smaller, result.Evidence
				break
			}
		}
	}
	return nil
}
