package quorum

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// An Admission brings a node back that restarted, and so may have forgotten keys and counters, or remember old ones. Each client may
// run one, at the same time as others. A node counts as restarted when its run_id is not the one that it was admitted under; it says so
// itself, in the script that grants, so no client can overlook it.
//
//  1. Mark the node, for this run_id and with a random text, unless it is marked.
//  2. Wait for the quarantine, on a clock that counts sleep. If mark or run_id change, begin again: it has forgotten again, perhaps
//     without a restart.
//  3. Then read the counters of a majority of admitted nodes, other than this one.
//  4. In one step, if run_id and mark are still the same: raise the counters to those, and admit the node.
//
// The waiting keeps leases apart: those that the node forgot have ended. The reading keeps tokens in order. An attempt to which the
// node's old memory contributed had at least a majority less one of the other nodes, of which any majority of them contains one. After
// the waiting it has long had its token or failed, so what is read covers it; reading first and waiting then would miss an attempt
// that ended in between. Reading without waiting would as well: a majority may be put together from before and after the restart (Michael, Ports,
// Sharma, Szekeres, "Recovering Shared Objects Without Stable Storage", DISC 2017). How long the server says that it has
// been up is not used: that is told by its wall clock.
//
// It is not safe for concurrent use.
type Admission struct {
	params Params
	run    string
	mark   string
	since  driver.Instant
}

// Admission begins to watch a node.
func (p Params) Admission() Admission { return Admission{params: p} }

// A Standing is what a node says of itself.
type Standing struct {
	Run      string // the run_id of the server
	Admitted string // the run_id under which it was admitted last; empty if it does not remember any
	Mark     string // that of the admission under way, for this run_id; else empty
}

// A Move is what an admission needs next.
type Move uint8

const (
	None Move = iota // the node is admitted
	Mark             // mark it, and look at it again
	Wait             // wait, and look at it again
	Read             // read the others' counters, and then admit it
)

// Look tells how the node stands, as of an answer that came at or before now. It returns what to do, and how long to wait first.
func (a *Admission) Look(s Standing, now driver.Instant) (Move, time.Duration) {
	switch {
	case s.Admitted == s.Run:
		*a = Admission{params: a.params}
		return None, 0
	case s.Mark == "":
		return Mark, 0
	case s.Run != a.run || s.Mark != a.mark:
		a.run, a.mark, a.since = s.Run, s.Mark, now // it restarted before, so this is late enough
	}
	if left := a.params.Quarantine() - now.Sub(a.since); left > 0 {
		return Wait, left
	}
	return Read, 0
}

// Ticket returns the run_id and the mark for which the waiting is over. Only as long as both are the node's may it be admitted.
func (a *Admission) Ticket() (run, mark string) { return a.run, a.mark }

// Counters are the counters of a node, by stripe.
type Counters []uint64

// raise raises each counter to at least the other's.
func (c Counters) raise(other Counters) {
	for i, n := range other {
		c[i] = max(c[i], n)
	}
}

// A Reading collects the counters of the other nodes for an [Admission]. All of it happens after the waiting.
type Reading struct {
	params   Params
	node     int // that is to be admitted
	admitted Set
	not      Set // neither admitted, so what they know is worth nothing
	away     Set
	counters Counters
}

// Reading begins to read, for the admission of a node, counters for so many stripes.
func (p Params) Reading(node, stripes int) Reading {
	return Reading{params: p, node: node, counters: make(Counters, stripes)}
}

// Answer tells the counters of a node, as read in one step in which it was admitted or was not.
func (r *Reading) Answer(node int, admitted bool, c Counters) {
	if node == r.node {
		return
	}
	r.away.remove(node)
	switch {
	case admitted:
		r.admitted.add(node)
		r.not.remove(node) // it was admitted since it answered the last time
	case !r.admitted.Has(node): // else what it said when it was admitted counts
		r.not.add(node)
	}
	r.counters.raise(c) // that of a node which is not admitted does no harm
}

// Away tells that a node does not answer.
func (r *Reading) Away(node int) {
	if node != r.node && !r.admitted.Has(node) && !r.not.Has(node) {
		r.away.add(node)
	}
}

// Verdict is Won once a majority of admitted nodes has been read, and Failed once all have answered or are away without that.
func (r *Reading) Verdict() Verdict {
	switch {
	case r.admitted.Len() >= r.params.Quorum():
		return Won
	case r.admitted.Len()+r.not.Len()+r.away.Len() == r.params.Nodes-1:
		return Failed
	}
	return Open
}

// MajorityLost reports whether so many nodes are known to have restarted that no majority remembers, even if all that are away do.
// Then nothing can be read back, and only clocks can order tokens across the loss: those from before are no greater than the time at which
// they were made, in microseconds, as long as clocks are right to within half the outage. It is certain only when Verdict is Failed.
func (r *Reading) MajorityLost() bool {
	return r.params.Nodes-1-r.not.Len() < r.params.Quorum()
}

// Counters returns, by stripe, the highest counters that were read, and none less than floor.
func (r *Reading) Counters(floor uint64) Counters {
	for i := range r.counters {
		r.counters[i] = max(r.counters[i], floor)
	}
	return r.counters
}
