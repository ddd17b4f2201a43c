package quorumtest

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// An agent admits nodes that restarted. There are several at a time.
type agent struct {
	actor
	admissions []quorum.Admission // by node
	round      []uint64           // of the exchange under way, by node: what belongs to another one is late
	first      []quorum.Counters  // what was read before the wait, if that is what is broken
	marks      int
}

const (
	often   = 200 * time.Millisecond // how often agents look at nodes that are well
	overdue = 150 * time.Millisecond // for an answer
)

// ask sends a request to a node of which next depends. If there is no answer, the agent looks at the node again.
func (a *agent) ask(node int, r Request, next func(Answer)) {
	a.round[node]++
	round := a.round[node]
	a.send(node, r, func(reply Answer) {
		if round == a.round[node] {
			a.round[node]++
			next(reply)
		}
	})
	a.after(overdue, func() {
		if round == a.round[node] {
			a.look(node)
		}
	})
}

func (a *agent) look(node int) {
	a.ask(node, Request{Op: Look}, func(r Answer) { a.follow(node, r) })
}

// follow does what package quorum says is next.
func (a *agent) follow(node int, r Answer) {
	adm := &a.admissions[node]
	move, wait := adm.Look(r.Standing, a.instant())
	switch a.w.broken {
	case NoWaiting:
		if move == quorum.Wait {
			move = quorum.Read
		}
	case Uptime:
		if (move == quorum.Wait || move == quorum.Read) && r.Uptime >= a.w.params.Quarantine() {
			move = quorum.Read
		} else if move == quorum.Read {
			move, wait = quorum.Wait, often
		}
	}
	switch move {
	case quorum.None:
		a.after(often, func() { a.look(node) })
	case quorum.Mark:
		a.first[node] = nil
		a.marks++
		a.ask(node, Request{Op: Mark, Mark: fmt.Sprintf("%s.%d", a.name, a.marks)}, func(Answer) { a.look(node) })
	case quorum.Wait:
		if a.w.broken == ReadingFirst && a.first[node] == nil {
			a.read(node, func(c quorum.Counters) { a.first[node] = c })
			return
		}
		a.after(wait, func() { a.look(node) })
	case quorum.Read:
		a.read(node, func(c quorum.Counters) {
			if a.w.broken == ReadingFirst && a.first[node] != nil {
				c = a.first[node]
			}
			a.admit(node, c)
		})
	}
}

// read reads the others' counters, for one of the nodes, and looks at the node again.
func (a *agent) read(node int, got func(quorum.Counters)) {
	if a.w.broken == NoReading {
		got(make(quorum.Counters, a.w.stripes))
		return
	}
	a.round[node]++
	round := a.round[node]
	reading := a.w.params.Reading(node, a.w.stripes)
	follow := func() {
		if round != a.round[node] || reading.Verdict() == quorum.Open {
			return
		}
		a.round[node]++
		switch {
		case reading.Verdict() == quorum.Won:
			got(reading.Counters(0))
		case reading.MajorityLost() && a.w.cell.byTime:
			a.w.log(a.name, "goes by time: a majority has forgotten")
			got(reading.Counters(a.micros()))
		}
		if round+1 == a.round[node] { // nothing was sent
			a.after(often, func() { a.look(node) })
		}
	}
	for other := range a.w.nodes {
		a.send(other, Request{Op: Read}, func(r Answer) {
			if round == a.round[node] {
				reading.Answer(other, r.OK, r.Counters)
				follow()
			}
		})
	}
	a.after(overdue, func() {
		for other := range a.w.nodes {
			reading.Away(other)
		}
		follow()
	})
}

func (a *agent) admit(node int, c quorum.Counters) {
	run, mark := a.admissions[node].Ticket()
	a.ask(node, Request{Op: Admit, Run: run, Mark: mark, Counters: c}, func(r Answer) {
		if r.OK {
			a.w.judge.admissions++
		}
		a.look(node)
	})
}
