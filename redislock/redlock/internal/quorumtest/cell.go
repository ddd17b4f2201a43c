package quorumtest

import "time"

// A Cell is a kind of trouble, and what is promised in it all the same. Messages that are late, lost and repeated, partitions, pauses
// of nodes and clients, clients that die, and clocks that drift within the bounds belong to all of them.
type Cell struct {
	Name string

	forget bool // nodes restart or are wiped, but never so many that no majority votes
	all    bool // any number of them does
	byTime bool // what agents do then
	jumps  bool // nodes' clocks jump while they serve
	stands bool // clients stop, and their clocks with them
	hints  hints

	// What the protocol does not promise here, so it is counted and no violation.
	Overlaps bool // two valid holds
	Disorder bool // tokens that are equal, or out of order
}

// Hints are what clients want their tokens to be.
type hints uint8

const (
	dense  hints = iota // one more than the last that they saw
	clocks              // their wall clocks, which are about right
	wild                // anything
)

// skew is how wrong wall clocks are.
func (c Cell) skew() time.Duration {
	if c.byTime {
		return 50 * time.Millisecond // tokens rest on them, when a majority has forgotten
	}
	return 2 * time.Hour
}

// cells are all of them. A seed belongs to one.
var cells = [...]Cell{
	{Name: "remembering nodes", hints: wild},
	{Name: "a minority forgets", forget: true, hints: dense},
	{Name: "a minority forgets, hints by clocks that are wrong", forget: true, hints: clocks},
	{Name: "a minority forgets, any hints", forget: true, hints: wild},
	{Name: "a majority forgets, clocks are right", forget: true, all: true, byTime: true, hints: clocks},
	{Name: "nodes' clocks jump", forget: true, jumps: true, hints: wild, Overlaps: true},
	{Name: "clients' clocks stand still", stands: true, hints: dense, Overlaps: true},
	{Name: "clients' clocks stand still while nodes forget", forget: true, stands: true, hints: dense, Overlaps: true, Disorder: true},
}

// cellOf returns the cell of a seed.
func cellOf(seed uint64) Cell { return cells[seed%uint64(len(cells))] }

// nodesOf returns the number of nodes in the world of a seed.
func nodesOf(seed uint64) int { return 3 + 2*int(seed/uint64(len(cells))%2) }
