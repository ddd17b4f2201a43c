package quorum

import (
	"math"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Admission brings back a node that restarted, and that may therefore have forgotten keys
// and counters, or remember old ones. Each client may run one, at the same time as others. A
// node counts as restarted when its run_id is not the one that it was admitted under. The node
// itself checks that in the script that grants, so no client can overlook it.
//
//  1. Mark the node, for this run_id and with a random text, unless it is marked.
//  2. Wait for the quarantine, on the client's monotonic clock, or by the clocks of a majority of
//     the nodes (see [Params.Waited]). If mark or run_id change, begin again: the node has
//     forgotten again, perhaps without a restart.
//  3. Then read the counters of a majority of admitted nodes, other than this one.
//  4. In one step, if run_id and mark are still the same: raise the counters to those that were
//     read, and admit the node.
//
// The wait keeps leases apart: those that the node forgot have ended. The reading keeps tokens
// in order. Take an attempt to which the node's old memory contributed. Its majority included
// at least a majority less one of the other nodes, and any majority that is read in step 3
// contains one of those. After the wait the attempt has long had its token, or has failed, so
// the counters that are read cover it. Reading first and waiting then would miss an attempt
// that ended in between. Reading without waiting would miss one too: its majority may be put
// together from before and after the restart (Michael, Ports, Sharma, Szekeres, "Recovering
// Shared Objects Without Stable Storage", DISC 2017).
//
// Clients may all be short-lived, so the node remembers since when it waits: what the clocks of
// the nodes showed after it was marked. One wall clock may be set forward, in particular that of
// a machine that has just booted, so the clocks of a majority must agree that the wait is over.
// The uptime that the server reports is not used: it does not tell when a memory was wiped.
//
// An Admission is not safe for concurrent use.
type Admission struct {
	params Params
	run    string
	mark   string
	since  driver.Instant
}

// Admission begins the admission of a node.
func (p Params) Admission() Admission { return Admission{params: p} }

// A Standing is what a node reports about itself.
type Standing struct {
	Run string // the run_id of the server

	// Admitted is the run_id under which the node was last admitted. It is empty if the node
	// does not remember one.
	Admitted string

	// Mark is the mark of the admission under way for this run_id, or empty.
	Mark string

	// Waited is how long the node has had the mark by the clocks of a majority, if that is known.
	Waited time.Duration
}

// Clocks has what the nodes' clocks show, by node, in microseconds: 0 if that is not known.
type Clocks [MaxNodes]uint64

// Waited returns how much time has passed from since to now by the clocks of a majority of the
// nodes at least. If not enough of them are known at both times, it returns 0.
func (p Params) Waited(since, now Clocks) time.Duration {
	var passed [MaxNodes]time.Duration
	for i, then := range since[:p.Nodes] {
		if then != 0 && now[i] > then && now[i]-then < math.MaxInt64/1000 {
			passed[i] = time.Duration(now[i]-then) * time.Microsecond
		}
	}
	slices.Sort(passed[:p.Nodes])
	return passed[p.Nodes-p.Quorum()] // a majority of them are not smaller
}

// A Move is the next step that an admission needs.
type Move uint8

const (
	None Move = iota // the node is admitted
	Mark             // mark the node, and look at it again
	Wait             // wait, and look at the node again
	Read             // read the others' counters, and then admit the node
)

// Look evaluates the standing of the node, from an answer that came at or before now. It
// returns the next step, and how long to wait before it.
func (a *Admission) Look(s Standing, now driver.Instant) (Move, time.Duration) {
	switch {
	case s.Admitted == s.Run:
		*a = Admission{params: a.params}
		return None, 0
	case s.Mark == "":
		return Mark, 0
	case s.Run != a.run || s.Mark != a.mark:
		// The node restarted earlier than now, so the wait is long enough.
		a.run, a.mark, a.since = s.Run, s.Mark, now
	}
	if left := a.params.Quarantine() - max(now.SubMono(a.since), s.Waited); left > 0 {
		return Wait, left
	}
	return Read, 0
}

// Ticket returns the run_id and the mark for which the wait is over. The node may be admitted
// only while both are unchanged.
func (a *Admission) Ticket() (run, mark string) { return a.run, a.mark }

// Counters has the counters of a node, by stripe.
type Counters []uint64

// raise raises each counter to at least that of other.
func (c Counters) raise(other Counters) {
	for i, n := range other {
		c[i] = max(c[i], n)
	}
}

// A Reading collects the counters of the other nodes for an [Admission]. All of it must happen
// after the wait.
type Reading struct {
	params     Params
	node       int // the node that is to be admitted
	admitted   Set
	unadmitted Set // not admitted either, so they do not count
	counters   Counters
}

// Reading begins to read counters for the admission of a node. The argument stripes is the
// number of counters.
func (p Params) Reading(node, stripes int) Reading {
	return Reading{params: p, node: node, counters: make(Counters, stripes)}
}

// Answer records the counters of a node. They and admitted must come from the same atomic
// step on that node.
func (r *Reading) Answer(node int, admitted bool, c Counters) {
	switch {
	case node == r.node:
		return
	case admitted:
		r.admitted.add(node)
		r.unadmitted.remove(node) // it was admitted after its last answer
	case !r.admitted.Has(node): // its answer as an admitted node stays valid
		r.unadmitted.add(node)
	}
	r.counters.raise(c) // the counters of an unadmitted node do no harm
}

// Complete reports whether a majority of admitted nodes has been read.
func (r *Reading) Complete() bool { return r.admitted.Len() >= r.params.Quorum() }

// MajorityLost reports whether so many nodes are known to have restarted that no majority
// remembers, even if all nodes that have not answered do. Then nothing can be read back, and only
// clocks can order tokens across the loss: tokens from before it are no greater than the time, in
// microseconds, at which they were made, as long as clocks are right to within half the outage.
func (r *Reading) MajorityLost() bool {
	return r.params.Nodes-1-r.unadmitted.Len() < r.params.Quorum()
}

// Counters returns, by stripe, the greatest counters that were read.
func (r *Reading) Counters() Counters { return r.counters }
