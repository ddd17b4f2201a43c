package quorum

import "github.com/sniblock/snib/driver"

// A Tally counts the answers to a request that each node either carries out or not: to extend a
// lease, to free it, or to read it.
//
// A lease is certainly extended once a majority says so before the current lease has ended. A
// gap between the two is a loss.
//
// A Tally is not safe for concurrent use.
type Tally struct {
	params Params
	end    driver.Instant // the zero Instant: no end
	yes    Set
	no     Set
}

// Tally begins to count answers that matter until end, or forever if end is the zero Instant.
// For a renewal, end is the end of the lease's current validity, and never of the new one.
func (p Params) Tally(end driver.Instant) Tally { return Tally{params: p, end: end} }

// Yes records that a node did what it was asked. A node that does not answer may have done it too.
func (t *Tally) Yes(node int) { t.yes.add(node) }

// No records that the lease has ended on a node.
func (t *Tally) No(node int) { t.no.add(node) }

// Won reports whether a majority said yes in time.
func (t *Tally) Won(now driver.Instant) bool {
	return !t.isOver(now) && t.yes.Len() >= t.params.Quorum()
}

// Ended reports whether the lease has certainly ended: its time is over, or so many nodes have
// lost it that no majority has it.
func (t *Tally) Ended(now driver.Instant) bool {
	return t.isOver(now) || t.params.Nodes-t.no.Len() < t.params.Quorum()
}

func (t *Tally) isOver(now driver.Instant) bool { return !t.end.IsZero() && t.end.Reached(now) }
