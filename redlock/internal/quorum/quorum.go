package quorum

import (
	"iter"
	"math/bits"
	"time"

	"github.com/sniblock/snib/driver"
)

// MinNodes and MaxNodes limit the number of nodes, which must be odd. An even number tolerates
// no more failures than the odd number below it, and its majority is larger.
const (
	MinNodes = 3
	MaxNodes = 15
)

// Params are the parameters on which all clients of the same nodes must agree.
type Params struct {
	Nodes  int           // N
	MaxTTL time.Duration // the longest TTL of a lease
}

// Check returns an error that matches [driver.ErrInvalid] if the parameters are not valid.
func (p Params) Check() error {
	switch {
	case p.Nodes < MinNodes:
		return driver.Invalidf("number of nodes: Redlock needs at least %d nodes, got %d: with fewer, none may fail",
			MinNodes, p.Nodes)
	case p.Nodes > MaxNodes:
		return driver.Invalidf("number of nodes: Redlock takes at most %d nodes, got %d", MaxNodes, p.Nodes)
	case p.Nodes%2 == 0:
		return driver.Invalidf(
			"number of nodes: Redlock needs an odd number of nodes, got %d: as many may fail of %d, and the majority is smaller",
			p.Nodes, p.Nodes-1)
	}
	return nil
}

// Quorum returns the least number of nodes that is a majority.
func (p Params) Quorum() int { return p.Nodes/2 + 1 }

// Validity returns how long a lease may be relied upon, counted from before the first
// request was sent.
func Validity(ttl time.Duration) time.Duration {
	return ttl - ttl/driver.Drift - min(driver.Margin, ttl/10)
}

// Quarantine returns how long a restarted node is excluded: until the leases that it may have
// forgotten have ended, by the clock of the client that waits.
func (p Params) Quarantine() time.Duration { return p.MaxTTL + 2*p.MaxTTL/driver.Drift + driver.Margin }

// A Set is a set of nodes, which are numbered from 0.
type Set uint16

// Has reports whether node is in the set.
func (s Set) Has(node int) bool { return s&(1<<node) != 0 }

// Len returns the number of nodes in the set.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// All yields the nodes in order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := uint16(s); rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros16(rest)) {
				return
			}
		}
	}
}

func (s *Set) add(node int)    { *s |= 1 << node }
func (s *Set) remove(node int) { *s &^= 1 << node }

// A Verdict is the result of the answers so far.
type Verdict uint8

const (
	Open   Verdict = iota // further answers decide
	Won                   // a majority agrees
	Failed                // a majority can no longer be had, or not in time
)
