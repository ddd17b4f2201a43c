package quorumtest

import "time"

// A Cell is a set of faults, and what is promised in spite of them. All cells have late, lost
// and repeated messages, partitions, pauses of nodes and clients, clients that die, and clocks
// that drift within the limits.
type Cell struct {
	Name string

	forget          bool // nodes restart or are wiped, but a majority always votes
	majorityForgets bool // any number of nodes may forget at a time
	byTime          bool // agents then use clocks as the floor
	clocksJump      bool // nodes' clocks jump while they serve
	clocksStop      bool // clients stop, and their clocks with them
	hints           hints

	// The protocol does not promise these in this cell: they are counted, and are no violations.
	Overlaps bool // two valid holds
	Disorder bool // tokens that are equal, or out of order
}

// hints says which tokens the clients ask for.
type hints uint8

const (
	denseHints  hints = iota // one more than the last token they saw
	clockHints               // their wall clocks, which are about right
	randomHints              // any number
)

// skew returns how wrong wall clocks may be.
func (c Cell) skew() time.Duration {
	if c.byTime {
		return 50 * time.Millisecond // after a majority has forgotten, tokens rest on them
	}
	return 2 * time.Hour
}

// cells lists all cells. Each seed belongs to one.
var cells = [...]Cell{
	{Name: "remembering nodes", hints: randomHints},
	{Name: "a minority forgets", forget: true, hints: denseHints},
	{Name: "a minority forgets, hints by clocks that are wrong", forget: true, hints: clockHints},
	{Name: "a minority forgets, any hints", forget: true, hints: randomHints},
	{Name: "a majority forgets, clocks are right", forget: true, majorityForgets: true, byTime: true, hints: clockHints},
	{Name: "nodes' clocks jump", forget: true, clocksJump: true, hints: randomHints, Overlaps: true},
	{Name: "clients' clocks stand still", clocksStop: true, hints: denseHints, Overlaps: true},
	{Name: "clients' clocks stand still while nodes forget", forget: true, clocksStop: true, hints: denseHints,
		Overlaps: true, Disorder: true},
}

// cellOf returns the cell of a seed.
func cellOf(seed uint64) Cell { return cells[seed%uint64(len(cells))] }

// nodesOf returns the number of nodes in the world of a seed.
func nodesOf(seed uint64) int { return 3 + 2*int(seed/uint64(len(cells))%2) }
