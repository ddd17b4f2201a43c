package quorumtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

const (
	trouble = 20 * time.Second // for how long there is some
	bound   = 10 * time.Second // after it, for late messages, keys that nobody frees, and nodes that wait to be admitted
)

// A Result is what became of a world.
type Result struct {
	Seed       uint64
	Cell       Cell
	Nodes      int
	Violations []string
	Timeline   []string // if it was asked for

	Time    time.Duration // simulated
	Healing time.Duration // from the end of the trouble until everybody had got a lock, and all nodes voted
	Events  uint64

	Acquisitions, Renewals, Admissions int
	Overlaps, Disorders                int // where the cell allows for them
}

// Simulate runs the world of a seed to its end, or to the first violation.
func Simulate(seed uint64, broken Break, timeline bool) Result {
	w := newWorld(seed, broken, timeline)
	for w.now < trouble && w.judge.violations == nil {
		w.step()
	}
	w.heal()
	for w.now < trouble+bound && !w.healed() && w.judge.violations == nil {
		w.step()
	}
	if !w.healed() && w.judge.violations == nil {
		w.judge.wrong("%v after all was well again, %d of %d clients have got a lock since, and %d nodes don't vote",
			bound, w.settled, len(w.clients), w.forgetful())
	}
	j := &w.judge
	return Result{
		Seed: seed, Cell: w.cell, Nodes: len(w.nodes), Violations: j.violations, Timeline: w.lines,
		Time: w.now, Healing: w.now - trouble, Events: w.events,
		Acquisitions: j.acquisitions, Renewals: j.renewals, Admissions: j.admissions, Overlaps: j.overlaps, Disorders: j.disorders,
	}
}

// healed reports whether everybody has got a lock since the trouble was over, and all nodes vote.
func (w *world) healed() bool { return w.settled == len(w.clients) && w.forgetful() == 0 }

func newWorld(seed uint64, broken Break, timeline bool) *world {
	w := &world{
		seed: seed, cell: cellOf(seed), broken: broken, keep: timeline,
		params: quorum.Params{Nodes: nodesOf(seed), MaxTTL: maxTTL},
	}
	rng := w.source("world")
	w.locks, w.stripes = 1+rng.IntN(3), 1+rng.IntN(2)
	w.rough = chance(rng, 25)
	w.patient = []time.Duration{20 * time.Millisecond, maxTTL / 4, 2 * maxTTL}[rng.IntN(3)]
	w.judge = judge{w: w, greatest: make([]uint64, w.locks), taken: map[uint64]struct{}{}, holds: make([][]*hold, w.locks)}
	for i := range w.params.Nodes {
		m := &machine{actor: w.actor(fmt.Sprint("node ", i)), index: i}
		m.node = NewNode(m.newRun(), m.time(), w.locks, w.stripes, broken)
		if !w.cell.all { // else they have to find out by themselves
			m.node.Init()
		}
		w.nodes = append(w.nodes, m)
	}
	for i := range 2 + rng.IntN(4) {
		c := &client{actor: w.actor(fmt.Sprint("client ", i)), last: make([]uint64, w.locks)}
		w.clients = append(w.clients, c)
		w.push(event{who: &c.actor, do: func() { c.think(thought) }})
	}
	for i := range 1 + rng.IntN(3) {
		a := &agent{actor: w.actor(fmt.Sprint("agent ", i)), round: make([]uint64, len(w.nodes)), first: make([]quorum.Counters, len(w.nodes))}
		a.admissions = slices.Repeat([]quorum.Admission{w.params.Admission()}, len(w.nodes))
		w.agents = append(w.agents, a)
		for node := range w.nodes {
			w.push(event{who: &a.actor, do: func() { a.look(node) }})
		}
	}
	n := &nemesis{w.actor("nemesis")}
	w.push(event{who: &n.actor, do: n.act})
	return w
}

// Report describes a result that is not as it should be: what was violated, and what led to it.
func (r Result) Report() string {
	const lines = 150
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d nodes, %s:\n", r.Seed, r.Nodes, r.Cell.Name)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	fmt.Fprintf(&b, "the last %d lines of the timeline:\n", min(lines, len(r.Timeline)))
	for _, line := range r.Timeline[max(0, len(r.Timeline)-lines):] {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}
