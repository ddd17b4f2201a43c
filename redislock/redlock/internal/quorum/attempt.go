package quorum

import (
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Attempt is one try to take a lock: all nodes are asked at once, with a value that no other attempt ever uses. Whatever becomes of
// it, unless it is [Won] the caller has all nodes free the lock again, also those that did not answer.
//
// It is not safe for concurrent use.
type Attempt struct {
	params Params
	end    driver.Instant // of the lease's validity

	granted Set // nodes where the lock's key was the attempt's
	refused Set // nodes that will not help: they said no, are away, or have gone past the target
	raising Set // nodes that were asked to raise the counter
	counter [MaxNodes]uint64
	target  uint64 // the last token, once it is known
	verdict Verdict
}

// A Step says what follows from an answer.
type Step struct {
	Verdict Verdict
	Raise   Set    // nodes to be asked to raise their counter to Target, if the key is the attempt's there and the counter not higher
	Target  uint64 // the greatest token of the attempt
}

// Attempt begins an attempt for a lease of that TTL. Start is a moment before the first request is sent.
func (p Params) Attempt(start driver.Instant, ttl time.Duration) Attempt {
	return Attempt{params: p, end: start.Add(Validity(ttl))}
}

// Granted tells that the key was free on a node, and is the attempt's now; or was so already, when the node is asked again. Counter is what the
// node's counter was at that moment.
func (a *Attempt) Granted(node int, counter uint64, now driver.Instant) Step {
	if !a.granted.Has(node) {
		a.granted.add(node)
		a.refused.remove(node) // it was only late
		a.counter[node] = counter
	}
	return a.step(now)
}

// Raised tells that a node's counter is the target, and the key is still the attempt's.
func (a *Attempt) Raised(node int, now driver.Instant) Step {
	if a.raising.Has(node) {
		a.counter[node] = a.target
	}
	return a.step(now)
}

// Refused tells that a node granted nothing, or did not raise its counter; or that it will not answer, or not in time.
func (a *Attempt) Refused(node int, now driver.Instant) Step {
	if !a.granted.Has(node) || a.raising.Has(node) && a.counter[node] != a.target {
		a.refused.add(node)
	}
	return a.step(now)
}

// Expired tells that time has passed, and no more.
func (a *Attempt) Expired(now driver.Instant) Step { return a.step(now) }

// Granters returns the nodes that are known to have granted.
func (a *Attempt) Granters() Set { return a.granted }

func (a *Attempt) step(now driver.Instant) Step {
	if a.verdict != Open {
		return Step{Verdict: a.verdict, Target: a.target}
	}
	var raise Set
	if a.granted.Len() >= a.params.Quorum() {
		raise = a.aim()
	}
	switch {
	case a.end.Reached(now): // Redlock's own check: what is not certain in time is nothing
		a.verdict = Failed
	case a.target != 0 && a.at(a.target).Len() >= a.params.Quorum():
		a.verdict = Won
	case a.params.Nodes-a.refused.Len() < a.params.Quorum():
		a.verdict = Failed
	}
	if a.verdict != Open {
		raise = 0
	}
	a.raising |= raise
	return Step{Verdict: a.verdict, Raise: raise, Target: a.target}
}

// aim sets the target, when a majority has granted, and returns the nodes that are to be raised to it.
func (a *Attempt) aim() (raise Set) {
	if a.target == 0 {
		a.target = slices.Max(a.counter[:a.params.Nodes]) // mostly they agree; if not, only to the highest can all be raised
	}
	for node := range a.granted.All() {
		switch c := a.counter[node]; {
		case c > a.target:
			a.refused.add(node) // it can't be lowered
		case c < a.target && !a.raising.Has(node) && !a.refused.Has(node):
			raise.add(node)
		}
	}
	return raise
}

// at returns the nodes whose counter was c while the key was the attempt's.
func (a *Attempt) at(c uint64) (agreed Set) {
	for node := range a.granted.All() {
		if a.counter[node] == c {
			agreed.add(node)
		}
	}
	return agreed
}
