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
	away   Set
}

// Tally begins to count answers that matter until end, or forever if end is the zero Instant.
// For a renewal, end is the end of the lease's current validity, and never of the new one.
func (p Params) Tally(end driver.Instant) Tally { return Tally{params: p, end: end} }

// Yes records that a node did what it was asked.
func (t *Tally) Yes(node int, now driver.Instant) Verdict {
	t.away.remove(node)
	t.yes.add(node)
	return t.Verdict(now)
}

// No records that the lease has ended on a node.
func (t *Tally) No(node int, now driver.Instant) Verdict {
	t.away.remove(node)
	t.no.add(node)
	return t.Verdict(now)
}

// Away records that a node will not answer, or not in time. It may have executed the request.
func (t *Tally) Away(node int, now driver.Instant) Verdict {
	if !t.yes.Has(node) && !t.no.Has(node) {
		t.away.add(node)
	}
	return t.Verdict(now)
}

// Verdict is Won when a majority said yes in time, and Failed when that can no longer happen.
func (t *Tally) Verdict(now driver.Instant) Verdict {
	switch q := t.params.Quorum(); {
	case !t.end.IsZero() && t.end.Reached(now):
		return Failed
	case t.yes.Len() >= q:
		return Won
	case t.params.Nodes-t.no.Len()-t.away.Len() < q:
		return Failed
	}
	return Open
}

// Ended reports whether the lease has certainly ended: its time is over, or so many nodes have
// lost it that no majority has it.
func (t *Tally) Ended(now driver.Instant) bool {
	return !t.end.IsZero() && t.end.Reached(now) || t.params.Nodes-t.no.Len() < t.params.Quorum()
}
