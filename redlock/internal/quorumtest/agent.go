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
	switch a.w.broken {
	case NoWaiting:
		if move == quorum.Wait {
			move = quorum.Read
		}
	case Uptime:
		if (move == quorum.Wait || move == quorum.Read) && r.Uptime >= a.w.params.Quarantine() {
			move = quorum.Read
		} else if move == quorum.Read {
			move, wait = quorum.Wait, checkInterval
		}
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
			a.read(node, func(c quorum.Counters) { a.earlyRead[node] = c })
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

// read reads the other nodes' counters for the admission of node, and checks the node again.
func (a *agent) read(node int, got func(quorum.Counters)) {
	if a.w.broken == NoReading {
		got(make(quorum.Counters, a.w.stripes))
		return
	}
	a.exchange[node]++
	exchange := a.exchange[node]
	reading := a.w.params.Reading(node, a.w.stripes)
	update := func() {
		if exchange != a.exchange[node] || reading.Verdict() == quorum.Open {
			return
		}
		a.exchange[node]++
		switch {
		case reading.Verdict() == quorum.Won:
			got(reading.Counters())
		case reading.MajorityLost() && a.w.cell.byTime:
			a.w.log(a.name, "goes by time: a majority has forgotten")
			c, floor := reading.Counters(), a.micros()
			for i := range c {
				c[i] = max(c[i], floor)
			}
			got(c)
		}
		if exchange+1 == a.exchange[node] { // nothing was sent
			a.after(checkInterval, func() { a.checkNode(node) })
		}
	}
	for other := range a.w.nodes {
		a.send(other, Request{Op: Read}, func(r Answer) {
			if exchange == a.exchange[node] {
				reading.Answer(other, r.OK, r.Counters)
				update()
			}
		})
	}
	a.after(requestTimeout, func() {
		for other := range a.w.nodes {
			reading.Away(other)
		}
		update()
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
