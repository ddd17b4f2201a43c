package quorum

import "github.com/sniblock/snib/driver"

// A Tally counts the answers to a request that each node either carries out or not: to extend a lease, to free it, to look at it.
//
// A lease is extended for certain once a majority says so before the lease that it extends has ended; a gap is a loss. It is not
// safe for concurrent use.
type Tally struct {
	params Params
	end    driver.Instant // the zero Instant: there is none
	yes    Set
	no     Set
	away   Set
}

// Tally begins to count answers that matter until end, or for ever if that is the zero Instant. For a renewal it is the end of the
// validity of the lease as it stands, and never that of the new one.
func (p Params) Tally(end driver.Instant) Tally { return Tally{params: p, end: end} }

// Yes tells that a node did as it was asked.
func (t *Tally) Yes(node int, now driver.Instant) Verdict {
	t.away.remove(node)
	t.yes.add(node)
	return t.Verdict(now)
}

// No tells that the lease has ended on a node.
func (t *Tally) No(node int, now driver.Instant) Verdict {
	t.away.remove(node)
	t.no.add(node)
	return t.Verdict(now)
}

// Away tells that a node will not answer, or not in time: what it did is not known.
func (t *Tally) Away(node int, now driver.Instant) Verdict {
	if !t.yes.Has(node) && !t.no.Has(node) {
		t.away.add(node)
	}
	return t.Verdict(now)
}

// Verdict is Won when a majority said yes in time, and Failed when that can't happen any more.
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

// Ended reports whether the lease has ended for certain: in time, or on so many nodes that no majority has it.
func (t *Tally) Ended(now driver.Instant) bool {
	return !t.end.IsZero() && t.end.Reached(now) || t.params.Nodes-t.no.Len() < t.params.Quorum()
}
