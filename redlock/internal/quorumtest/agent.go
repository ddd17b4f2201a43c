package quorumtest

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/redlock/internal/quorum"
)

// An agent admits nodes that restarted. A world has several agents.
type agent struct {
	actor
	admissions []quorum.Admission // by node

	// exchange has the number of the exchange under way, by node. Answers of another
	// exchange are late.
	exchange []uint64

	// earlyRead has, by node, the counters read before the wait. Only the break
	// ReadingFirst uses it.
	earlyRead []quorum.Counters

	marks int
}

const (
	checkInterval  = 200 * time.Millisecond // between two checks of a node that is well
	requestTimeout = 150 * time.Millisecond // for an answer
)

// request sends a request to a node and passes the answer to next. If there is no answer, the
// agent checks the node again.
func (a *agent) request(node int, r Request, next func(Answer)) {
	a.exchange[node]++
	exchange := a.exchange[node]
	a.send(node, r, func(reply Answer) {
		if exchange == a.exchange[node] {
			a.exchange[node]++
			next(reply)
		}
	})
	a.after(requestTimeout, func() {
		if exchange == a.exchange[node] {
			a.checkNode(node)
		}
	})
}

func (a *agent) checkNode(node int) {
	if a.w.shortAgents {
		a.admissions[node] = a.w.params.Admission()
	}
	a.request(node, Request{Op: Look}, func(r Answer) {
		if r.Standing.Admitted == r.Standing.Run || r.Standing.Mark == "" {
			a.advance(node, r)
			return
		}
		a.readClocks(node, func(now quorum.Clocks) {
			a.note(node, r, now)
			r.Standing.Waited = a.w.params.Waited(r.Since, now)
			a.advance(node, r)
		})
	})
}

// readClocks reads the clocks of all nodes, and passes on those that are there in time.
func (a *agent) readClocks(node int, next func(quorum.Clocks)) {
	a.exchange[node]++
	exchange := a.exchange[node]
	var now quorum.Clocks
	for other := range a.w.nodes {
		a.send(other, Request{Op: Look}, func(r Answer) {
			if exchange == a.exchange[node] {
				now[other] = r.Now
			}
		})
	}
	a.after(requestTimeout/4, func() {
		if exchange == a.exchange[node] {
			next(now)
		}
	})
}

// note tells a node the clocks that it does not know yet.
func (a *agent) note(node int, r Answer, now quorum.Clocks) {
	for i := range now {
		if r.Since[i] != 0 {
			now[i] = 0
		}
	}
	if now != (quorum.Clocks{}) {
		a.send(node, Request{Op: Note, Mark: r.Standing.Mark, Clocks: now}, func(Answer) {})
	}
}

// advance takes the step that package quorum returns.
func (a *agent) advance(node int, r Answer) {
	adm := &a.admissions[node]
	move, wait := adm.Look(r.Standing, a.instant())
	if a.w.broken == NoWaiting && move == quorum.Wait {
		move = quorum.Read
	}
	switch move {
	case quorum.None:
		a.after(checkInterval, func() { a.checkNode(node) })
	case quorum.Mark:
		a.earlyRead[node] = nil
		a.marks++
		a.request(node, Request{Op: Mark, Mark: fmt.Sprintf("%s.%d", a.name, a.marks)}, func(Answer) { a.checkNode(node) })
	case quorum.Wait:
		if a.w.broken == ReadingFirst && a.earlyRead[node] == nil {
			a.read(node, func(c quorum.Counters) {
				a.earlyRead[node] = c
				a.after(checkInterval, func() { a.checkNode(node) })
			})
			return
		}
		if a.w.shortAgents {
			wait = min(wait, checkInterval)
		}
		a.after(wait, func() { a.checkNode(node) })
	case quorum.Read:
		a.read(node, func(c quorum.Counters) {
			if a.w.broken == ReadingFirst && a.earlyRead[node] != nil {
				c = a.earlyRead[node]
			}
			a.admit(node, c)
		})
	}
}

// read passes on the other nodes' counters for the admission of node, or checks the node again.
func (a *agent) read(node int, got func(quorum.Counters)) {
	if a.w.broken == NoReading {
		got(make(quorum.Counters, a.w.stripes))
		return
	}
	a.exchange[node]++
	exchange := a.exchange[node]
	reading := a.w.params.Reading(node, a.w.stripes)
	answered := make(map[int]bool)
	finish := func() {
		a.exchange[node]++
		switch c, floor := reading.Counters(), a.micros(); {
		case reading.Complete():
			got(c)
		case reading.MajorityLost() && a.w.cell.byTime:
			a.w.log(a.name, "goes by time: a majority has forgotten")
			for i := range c {
				c[i] = max(c[i], floor)
			}
			got(c)
		default:
			a.after(checkInterval, func() { a.checkNode(node) })
		}
	}
	for other := range a.w.nodes {
		a.send(other, Request{Op: Read}, func(r Answer) {
			if exchange != a.exchange[node] || other == node {
				return
			}
			answered[other] = true
			if reading.Answer(other, r.OK, r.Counters); reading.Complete() || len(answered) == len(a.w.nodes)-1 {
				finish()
			}
		})
	}
	a.after(requestTimeout, func() {
		if exchange == a.exchange[node] {
			finish()
		}
	})
}

func (a *agent) admit(node int, c quorum.Counters) {
	run, mark := a.admissions[node].Ticket()
	a.request(node, Request{Op: Admit, Run: run, Mark: mark, Counters: c}, func(r Answer) {
		if r.OK {
			a.w.judge.admissions++
		}
		a.checkNode(node)
	})
}
