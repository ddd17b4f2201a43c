package quorumtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/redlock/internal/quorum"
)

const (
	faultTime = 20 * time.Second // how long faults happen
	// healTime is how long the world may take to recover after that. It covers late messages,
	// keys that nobody frees, and nodes that wait for admission.
	healTime = 10 * time.Second
)

// A Result is the outcome of a world.
type Result struct {
	Seed       uint64
	Cell       Cell
	Nodes      int
	Violations []string
	Timeline   []string // if requested

	Time time.Duration // simulated

	// Healing is the time from the end of the faults until every client has had a lock and
	// all nodes vote.
	Healing time.Duration

	Events uint64

	Acquisitions, Renewals, Admissions int

	Overlaps, Disorders int // allowed by the cell
}

// Simulate runs the world of a seed to its end, or to the first violation.
func Simulate(seed uint64, broken Break, timeline bool) Result {
	w := newWorld(seed, broken, timeline)
	for w.now < faultTime && w.judge.violations == nil {
		w.step()
	}
	w.heal()
	for w.now < faultTime+healTime && !w.healed() && w.judge.violations == nil {
		w.step()
	}
	if !w.healed() && w.judge.violations == nil {
		w.judge.reportf("%v after all was well again, %d of %d clients have got a lock since, and %d nodes don't vote",
			healTime, w.recovered, len(w.clients), w.nonVoting())
	}
	j := &w.judge
	return Result{
		Seed: w.seed, Cell: w.cell, Nodes: len(w.nodes), Violations: j.violations, Timeline: w.timeline,
		Time: w.now, Healing: w.now - faultTime, Events: w.events,
		Acquisitions: j.acquisitions, Renewals: j.renewals, Admissions: j.admissions, Overlaps: j.overlaps,
		Disorders: j.disorders,
	}
}

// healed reports whether every client has had a lock since the faults ended, and all
// nodes vote.
func (w *world) healed() bool { return w.recovered == len(w.clients) && w.nonVoting() == 0 }

func newWorld(seed uint64, broken Break, timeline bool) *world {
	w := &world{
		seed: seed, cell: cellOf(seed), broken: broken, keepTimeline: timeline,
		params: quorum.Params{Nodes: nodesOf(seed), MaxTTL: maxTTL},
	}
	rng := w.source("world")
	w.locks, w.stripes = 1+rng.IntN(3), 1+rng.IntN(2)
	w.badNetwork = chance(rng, 25)
	w.nodeTimeout = []time.Duration{20 * time.Millisecond, maxTTL / 4, 2 * maxTTL}[rng.IntN(3)]
	w.judge = judge{w: w, greatest: make([]uint64, w.locks), usedTokens: map[uint64]*client{},
		holds: make([][]*hold, w.locks)}
	for i := range w.params.Nodes {
		m := &machine{actor: w.actor(fmt.Sprint("node ", i)), index: i}
		m.node = NewNode(m.newRunID(), w.locks, w.stripes, broken)
		if !w.cell.majorityForgets { // otherwise the agents must admit them
			m.node.Init()
		}
		w.nodes = append(w.nodes, m)
	}
	for i := range 2 + rng.IntN(4) {
		c := &client{actor: w.actor(fmt.Sprint("client ", i)), lastTokens: make([]uint64, w.locks)}
		w.clients = append(w.clients, c)
		w.push(event{actor: &c.actor, run: func() { c.think(maxThinkTime) }})
	}
	for i := range 1 + rng.IntN(3) {
		a := &agent{actor: w.actor(fmt.Sprint("agent ", i)), exchange: make([]uint64, len(w.nodes)),
			earlyRead: make([]quorum.Counters, len(w.nodes))}
		a.admissions = slices.Repeat([]quorum.Admission{w.params.Admission()}, len(w.nodes))
		w.agents = append(w.agents, a)
		for node := range w.nodes {
			w.push(event{actor: &a.actor, run: func() { a.checkNode(node) }})
		}
	}
	w.shortAgents = chance(rng, 50)
	n := &nemesis{w.actor("nemesis")}
	w.push(event{actor: &n.actor, run: n.act})
	return w
}

// Report describes a failure: the violations, and what led to them.
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
