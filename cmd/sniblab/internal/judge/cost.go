package judge

import (
	"maps"
	"slices"

	"github.com/sniblock/snib/internal/history"
)

// Events of what a lock costs. Token has the number.
//
// Two events of the kind Commands without a Fault are the begin and the end of a time without
// faults. Three with the Fault "crowd" and the same ID belong to a crowd: it waits for a lock that
// is held from the first to the second, and gets it from the second to the third.
const (
	Commands    history.Kind = "commands"    // so many commands the store has executed so far
	Connections history.Kind = "connections" // so many connections clients have open
)

// A Crowd is what hand-overs cost while a crowd waited.
type Crowd struct {
	PerHold float64 // commands, without those that come with time, such as polling and heartbeats
	Usual   float64 // the same before the first fault, when fewer clients waited
	More    float64 // waiters than then, on average

	Excused bool // a stated assumption excuses a herd
}

// herd reports whether each hand-over made many waiters ask the store. If it wakes only one, the
// others cause no commands. The second condition is for stores that count the parts of a request,
// such as commands of a script: one request more is not a herd.
func (c Crowd) herd() bool {
	more := c.PerHold - c.Usual
	return !c.Excused && more >= c.More/3 && more >= c.Usual/3
}

// hasHerd reports whether there was a herd in most crowds.
func (r Result) hasHerd() bool {
	herds := 0
	for _, c := range r.Crowds {
		if c.herd() {
			herds++
		}
	}
	return 2*herds > len(r.Crowds)
}

// InCrowds returns the PerHold of all crowds.
func (r Result) InCrowds() (all []float64) {
	for _, c := range r.Crowds {
		all = append(all, c.PerHold)
	}
	return all
}

// Median returns the median of some numbers, the smaller one of two, or false if there are none.
func Median(numbers []float64) (median float64, ok bool) {
	if len(numbers) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[(len(sorted)-1)/2], true
}

// countCosts counts what the lock costs. assumption excuses a herd, if it is not "".
func (r *Result) countCosts(events []history.Event, assumption string) {
	var calm []history.Event
	crowds := make(map[int64][]history.Event)
	processes := 0
	for _, e := range events {
		switch {
		case e.Kind == history.Start:
			processes++
		case e.Kind == Connections:
			r.Connections = append(r.Connections, float64(e.Token)/float64(max(processes, 1)))
		case e.Kind == Commands && e.Fault == "":
			calm = append(calm, e)
		case e.Kind == Commands:
			crowds[e.ID] = append(crowds[e.ID], e)
		}
	}
	if len(calm) != 2 {
		return
	}
	usual := measure(events, calm[0], calm[1])
	if !usual.valid() {
		return
	}
	r.PerHold = append(r.PerHold, usual.perGrant(usual.commands))
	for _, id := range slices.Sorted(maps.Keys(crowds)) {
		if e := crowds[id]; len(e) == 3 {
			if c, ok := newCrowd(usual, measure(events, e[0], e[1]), measure(events, e[1], e[2])); ok {
				c.Excused = c.herd() && r.excuse(assumption)
				r.Crowds = append(r.Crowds, c)
			}
		}
	}
}

// A cost is what happened between two events of the kind Commands.
type cost struct {
	commands float64
	took     float64 // ns
	grants   int
	waiters  float64 // at each grant, in all
	left     float64 // waiters at the end
}

func measure(events []history.Event, from, until history.Event) cost {
	c := cost{commands: float64(int64(until.Token - from.Token)), took: float64(until.At - from.At)}
	waiting := make(map[[2]any]bool)
	for _, e := range events {
		if e.At > until.At {
			break
		}
		key := [2]any{e.Worker, e.ID}
		switch e.Kind {
		case history.Begin:
			if e.Fault == history.KillWorker {
				maps.DeleteFunc(waiting, func(key [2]any, _ bool) bool { return key[0] == e.Worker })
			}
		case history.Call:
			waiting[key] = true
		case history.Failed:
			delete(waiting, key)
		case history.Acquired:
			delete(waiting, key)
			if e.At > from.At {
				c.grants++
				c.waiters += float64(len(waiting))
			}
		}
	}
	c.left = float64(len(waiting))
	return c
}

// valid reports whether there are grants, and the server did not restart, which resets its count.
func (c cost) valid() bool { return c.grants > 0 && c.commands >= 0 }

func (c cost) perGrant(n float64) float64 { return n / float64(c.grants) }

// newCrowd compares the time in which a crowd got the lock with the time in which it waited, and
// with the usual cost. It returns false if there were too few hand-overs or waiters to tell.
func newCrowd(usual, waiting, passing cost) (Crowd, bool) {
	const leastGrants, leastWaiters = 6, 3
	if !passing.valid() || waiting.commands < 0 || waiting.left == 0 || passing.grants < leastGrants {
		return Crowd{}, false
	}
	waiters := passing.perGrant(passing.waiters)
	withTime := waiting.commands / waiting.took * passing.took // as if the crowd did not become smaller
	c := Crowd{
		PerHold: passing.perGrant(max(0, passing.commands-withTime*min(1, waiters/waiting.left))),
		Usual:   usual.perGrant(usual.commands),
		More:    waiters - usual.perGrant(usual.waiters),
	}
	return c, c.More >= leastWaiters
}
