package quorum

import (
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Attempt is one try to take a lock. The caller asks all nodes at once, with a value that no
// other attempt ever uses. Unless the attempt is [Won], the caller must then have all nodes
// free the lock, also those that did not answer.
//
// An Attempt is not safe for concurrent use.
type Attempt struct {
	params Params
	end    driver.Instant // of the lease's validity

	granted Set // nodes on which the lock's key was the attempt's

	// refused are the nodes that will not help: they refused, are away, or have passed
	// the target.
	refused Set

	raising Set // nodes that were asked to raise the counter
	counter [MaxNodes]uint64
	target  uint64 // the last token, once it is known
	verdict Verdict
}

// A Step says what follows from an answer.
type Step struct {
	Verdict Verdict

	// Raise has the nodes that must be asked to raise their counter to Target. A node must do
	// so only if its key is the attempt's and its counter is not higher.
	Raise Set

	// Target is the last token of the attempt, or 0 while it is unknown.
	Target uint64
}

// Attempt begins an attempt for a lease with this TTL. The instant start must be before the
// first request is sent.
func (p Params) Attempt(start driver.Instant, ttl time.Duration) Attempt {
	return Attempt{params: p, end: start.Add(Validity(ttl))}
}

// Granted records that the key was free on a node and now is the attempt's, or that it already
// was the attempt's when the request was repeated. The argument counter is the node's counter
// at that moment.
func (a *Attempt) Granted(node int, counter uint64, now driver.Instant) Step {
	if !a.granted.Has(node) {
		a.granted.add(node)
		a.refused.remove(node) // it was only late
		a.counter[node] = counter
	}
	return a.step(now)
}

// Raised records that a node's counter is the target, and that the key is still the attempt's.
func (a *Attempt) Raised(node int, now driver.Instant) Step {
	if a.raising.Has(node) {
		a.counter[node] = a.target
	}
	return a.step(now)
}

// Refused records that a node granted nothing, did not raise its counter, or will not
// answer in time.
func (a *Attempt) Refused(node int, now driver.Instant) Step {
	if !a.granted.Has(node) || a.raising.Has(node) && a.counter[node] != a.target {
		a.refused.add(node)
	}
	return a.step(now)
}

func (a *Attempt) step(now driver.Instant) Step {
	if a.verdict != Open {
		return Step{Verdict: a.verdict, Target: a.target}
	}
	var raise Set
	if a.granted.Len() >= a.params.Quorum() {
		raise = a.setTarget()
	}
	switch {
	case a.end.Reached(now): // Redlock's own check: what is not certain in time is nothing
		a.verdict = Failed
	case a.target != 0 && a.nodesAt(a.target).Len() >= a.params.Quorum():
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

// setTarget sets the target once a majority has granted. It returns the nodes that must
// be raised to it.
func (a *Attempt) setTarget() (raise Set) {
	if a.target == 0 {
		if a.target = a.agreedCounter(); a.target == 0 {
			a.target = slices.Max(a.counter[:a.params.Nodes]) // all can be raised only to the highest
		}
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

// agreedCounter returns the counter that a majority has granted with, or 0 if there is none.
func (a *Attempt) agreedCounter() uint64 {
	for node := range a.granted.All() {
		if a.nodesAt(a.counter[node]).Len() >= a.params.Quorum() {
			return a.counter[node]
		}
	}
	return 0
}

// nodesAt returns the nodes whose counter was c while the key was the attempt's.
func (a *Attempt) nodesAt(c uint64) (agreed Set) {
	for node := range a.granted.All() {
		if a.counter[node] == c {
			agreed.add(node)
		}
	}
	return agreed
}
