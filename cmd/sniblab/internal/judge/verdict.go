package judge

import (
	"fmt"
	"slices"
	"time"
)

// A Verdict is the name of a verdict.
type Verdict string

// The verdicts.
const (
	Safe     Verdict = "safe"
	Assuming Verdict = "safe-assuming"
	Fenced   Verdict = "safe-fenced"
	Unfenced Verdict = "unfenced"
	Back     Verdict = "tokens"
	ToldLate Verdict = "told-late"
	Overlap  Verdict = "overlap"
	Blocked  Verdict = "blocked"
)

// An Explanation says what a verdict means.
type Explanation struct {
	Verdict  Verdict
	Short    string // as the tables show it; a verdict with a number has another text there
	Long     string
	Rejected bool
}

// Verdicts returns all verdicts, the mildest first. A target gets the last one that applies.
func Verdicts() []Explanation {
	return []Explanation{
		{Safe, "safe", "No two holders believed in the lock at the same time, and no write was lost, not even without tokens. " +
			"Somebody got the lock after the last fault.", false},
		{Assuming, "safe within its stated assumptions", "Something went wrong, but only after a fault that the stated assumptions of the lock exclude.", false},
		{Fenced, "safe only with fencing", "No two holders believed in the lock at the same time. But a holder was stopped between its last look at " +
			"the lock and its write, and the write arrived when somebody else held the lock. No lock can prevent that. The resource that checks " +
			"tokens refused each of these writes.", false},
		{Unfenced, "safe only with fencing, which it lacks", "As safe-fenced, but the lock gives no tokens that the resource could check: the writes are lost.", true},
		{Back, "tokens go back", "A hold got a token that is not greater than that of an earlier hold, or a write was lost on the resource that checks tokens.", true},
		{ToldLate, "told late", "Two holders believed in the lock at the same time, until one of them was told of its loss.", true},
		{Overlap, "overlap", "Two holders believed in the lock at the same time, and neither was told.", true},
		{Blocked, "blocked for ever", "After the last fault, nobody got the lock any more, although all asked for it, for the TTL and 5 s at least.", true},
	}
}

// Verdict returns the verdict on a run.
func (r Result) Verdict() Verdict {
	switch {
	case r.Blocked:
		return Blocked
	case r.Untold > 0:
		return Overlap
	case r.ToldLate > 0:
		return ToldLate
	case r.Back > 0 || r.Fenced > 0:
		return Back
	case r.Damage > 0 && !r.Tokens:
		return Unfenced
	case r.Damage > 0:
		return Fenced
	case r.Excused > 0:
		return Assuming
	}
	return Safe
}

// Explain returns the explanation of a verdict.
func (v Verdict) Explain() Explanation { return Verdicts()[severity(v)] }

func severity(v Verdict) int {
	return slices.IndexFunc(Verdicts(), func(e Explanation) bool { return e.Verdict == v })
}

// Text returns the verdict with its numbers, such as "overlap of 812 ms".
func (r Result) Text() string {
	switch v := r.Verdict(); v {
	case Overlap:
		return "overlap of " + millis(r.size())
	case ToldLate:
		return "told late by " + millis(r.size())
	default:
		return v.Explain().Short
	}
}

// size returns the length of the overlap that the verdict is about, or 0.
func (r Result) size() time.Duration {
	switch r.Verdict() {
	case Overlap:
		return r.Untold
	case ToldLate:
		return r.ToldLate
	}
	return 0
}

// String says in a sentence what decided about the verdict, or "" if there is no such event.
func (e Evidence) String() string {
	at := func(ns int64) string { return fmt.Sprintf("%.3f s", time.Duration(ns).Seconds()) }
	switch {
	case e.Worst != nil:
		return fmt.Sprintf("From %s to %s, %s and %s both believed that they held the lock.",
			at(e.Worst.At), at(e.Worst.Until), e.Worst.Holds[0].Worker, e.Worst.Holds[1].Worker)
	case e.Disorder != nil:
		h, before := e.Disorder.Hold, e.Disorder.Before
		return fmt.Sprintf("%s got the lock with token %d at %s, and then %s got it with token %d at %s.",
			before.Worker, before.Token, at(before.Acquired), h.Worker, h.Token, at(h.Acquired))
	case e.First != nil:
		return fmt.Sprintf("At %s, the write of %s overwrote that of %s, which %[2]s had not seen when it read.",
			at(e.First.At), e.First.Hold.Worker, e.First.Other.Worker)
	}
	return ""
}

func millis(d time.Duration) string { return fmt.Sprintf("%d ms", max(1, d.Milliseconds())) }
