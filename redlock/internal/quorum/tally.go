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
	yes    Set
	no     Set
}

// Tally begins to count answers.
func (p Params) Tally() Tally { return Tally{params: p} }

// Yes records that a node did what it was asked. A node that does not answer may have done it too.
func (t *Tally) Yes(node int) { t.yes.add(node) }

// No records that the lease has ended on a node.
func (t *Tally) No(node int) { t.no.add(node) }

// Won reports whether a majority said yes before end, or ever if end is the zero Instant. For a
// renewal, end is that of the validity that the lease has now, perhaps by another renewal, and
// never of the one that it asks for.
func (t *Tally) Won(now, end driver.Instant) bool {
	return !isOver(now, end) && t.yes.Len() >= t.params.Quorum()
}

// Ended reports whether the lease has certainly ended: its time is over, or so many nodes have
// lost it that no majority has it.
func (t *Tally) Ended(now, end driver.Instant) bool {
	return isOver(now, end) || t.params.Nodes-t.no.Len() < t.params.Quorum()
}

func isOver(now, end driver.Instant) bool { return !end.IsZero() && end.Reached(now) }
