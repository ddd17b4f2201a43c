package judge

import (
	"slices"

	"github.com/sniblock/snib/internal/history"
)

// Events of what a lock costs. Token has the number. Two events of the kind Commands are the begin
// and the end of a time without faults.
const (
	Commands    history.Kind = "commands"    // so many commands the store has executed so far
	Connections history.Kind = "connections" // so many connections clients have open
)

// Median returns the median of some numbers, the smaller one of two, or false if there are none.
func Median(numbers []float64) (median float64, ok bool) {
	if len(numbers) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[(len(sorted)-1)/2], true
}

// countCosts counts what the lock costs.
func (r *Result) countCosts(events []history.Event) {
	var calm []history.Event
	processes := 0
	for _, e := range events {
		switch e.Kind {
		case history.Start:
			processes++
		case Connections:
			r.Connections = append(r.Connections, float64(e.Token)/float64(max(processes, 1)))
		case Commands:
			calm = append(calm, e)
		}
	}
	if len(calm) != 2 {
		return
	}
	if usual := measure(events, calm[0], calm[1]); usual.valid() {
		r.PerHold = append(r.PerHold, usual.perGrant(usual.commands))
	}
}

// A cost is what happened between two events of the kind Commands.
type cost struct {
	commands float64
	grants   int
}

func measure(events []history.Event, from, until history.Event) cost {
	c := cost{commands: float64(int64(until.Token - from.Token))}
	for _, e := range events {
		if e.Kind == history.Acquired && e.At > from.At && e.At <= until.At {
			c.grants++
		}
	}
	return c
}

// valid reports whether there are grants, and the server did not restart, which resets its count.
func (c cost) valid() bool { return c.grants > 0 && c.commands >= 0 }

func (c cost) perGrant(n float64) float64 { return n / float64(c.grants) }
