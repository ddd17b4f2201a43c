package quorumtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// maxTTL is the longest lease in a world.
const maxTTL = 800 * time.Millisecond

// A world is one simulated run. It is not safe for concurrent use.
type world struct {
	cell    Cell
	seed    uint64
	broken  Break
	params  quorum.Params
	stripes int
	locks   int

	now    time.Duration // the true time since the beginning
	queue  []event       // a heap
	events uint64        // number of events queued so far
	nonces uint64

	nodes       []*machine
	clients     []*client
	agents      []*agent
	badNetwork  bool          // the network is worse than usual
	nodeTimeout time.Duration // how long a client waits for one node
	shortAgents bool          // each step of an admission is another agent's
	faultsOver  bool          // no more faults happen
	recovered   int           // clients that have had a lock since

	judge        judge
	timeline     []string // kept if keepTimeline is set
	keepTimeline bool
}

// An event is something that will happen to an actor.
type event struct {
	at    time.Duration
	order uint64 // among events at the same time
	actor *actor
	life  uint64 // the actor's life to which it happens; 0: any
	run   func()
}

func (e event) before(f event) bool {
	return cmp.Or(cmp.Compare(e.at, f.at), cmp.Compare(e.order, f.order)) < 0
}

// An actor is a process. It has its own sources of random numbers, so that what one actor does
// has no influence on what others draw.
type actor struct {
	w           *world
	name        string
	rng         *rand.Rand // for what it does
	net         *rand.Rand // for the messages it sends
	clock       clock
	wallOffset  time.Duration // error of its wall clock, for hints and floors
	pausedUntil time.Duration // the true time until which it is paused
	life        uint64        // counts its lives; events of an earlier life do not happen
	cuts        []cut         // of its links, by node
}

// A cut has, for each direction of a link, the true time until which it is cut.
type cut struct{ to, from time.Duration }

// source returns a source of random numbers for an actor.
func (w *world) source(name string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.seed, h))
}

func (w *world) actor(name string) actor {
	a := actor{w: w, name: name, rng: w.source(name), net: w.source(name + " net"), life: 1,
		cuts: make([]cut, w.params.Nodes)}
	a.clock = clock{shown: time.Hour + between(a.rng, 0, time.Hour), ppm: a.rng.Int64N(2*maxDrift+1) - maxDrift}
	a.wallOffset = between(a.rng, -w.cell.skew(), w.cell.skew())
	return a
}

// between returns a random duration from lo to hi.
func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(r.Int64N(int64(hi-lo)+1))
}

// chance returns true with the given probability in percent.
func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// push queues an event.
func (w *world) push(e event) {
	w.events++
	e.order = w.events
	w.queue = append(w.queue, e)
	for i := len(w.queue) - 1; i > 0; {
		parent := (i - 1) / 2
		if !w.queue[i].before(w.queue[parent]) {
			return
		}
		w.queue[i], w.queue[parent] = w.queue[parent], w.queue[i]
		i = parent
	}
}

func (w *world) pop() event {
	first, last := w.queue[0], len(w.queue)-1
	w.queue[0], w.queue[last] = w.queue[last], event{}
	w.queue = w.queue[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if w.queue[child].before(w.queue[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		w.queue[i], w.queue[least] = w.queue[least], w.queue[i]
		i = least
	}
}

// step makes the next event happen. Events of a paused actor happen when it continues, in
// the same order.
func (w *world) step() {
	e := w.pop()
	w.now = e.at
	switch {
	case e.life != 0 && e.life != e.actor.life:
	case e.actor.pausedUntil > w.now:
		e.at = e.actor.pausedUntil
		w.push(e)
	default:
		e.run()
	}
}

// after schedules run for the actor's present life, when its clock has advanced by d.
func (a *actor) after(d time.Duration, run func()) {
	dueAt := a.clock.read(a.w.now) + d
	a.w.push(event{at: a.w.now + d + d/100, actor: a, life: a.life, run: func() {
		// Timers are late, so even slow clocks have advanced by d then.
		if left := dueAt - a.clock.read(a.w.now); left > 0 { // the clock stood still
			a.after(left, run)
			return
		}
		run()
	}})
}

func (a *actor) instant() driver.Instant { return a.clock.instant(a.w.now) }

// year is the time from 1970 to the beginning of the world, for wall clocks.
const year = 56 * 365 * 24 * time.Hour

// micros returns the actor's wall clock in microseconds.
func (a *actor) micros() uint64 { return uint64((year + a.w.now + a.wallOffset).Microseconds()) }

// pause stops the actor for d.
func (a *actor) pause(d time.Duration) { a.pausedUntil = max(a.pausedUntil, a.w.now+d) }

// send sends a request to a node, and passes each answer to answer. There may be no
// answer, or several.
func (a *actor) send(node int, r Request, answer func(Answer)) {
	w, m, sender := a.w, a.w.nodes[node], a.life
	for range a.copies() {
		if a.cuts[node].to > w.now {
			continue
		}
		life := m.life // lost with the connection if the node restarts
		if chance(a.net, 50) {
			life = 0 // or repeated on the next connection
		}
		w.push(event{at: w.now + a.delay(), actor: &m.actor, life: life, run: func() { w.deliver(a, sender, m, r, answer) }})
	}
}

// deliver makes the node carry out a request. It sends the answer back to the actor, which
// receives it only in the same life.
func (w *world) deliver(from *actor, sender uint64, m *machine, r Request, answer func(Answer)) {
	before := m.peek(r.Name)
	reply := m.node.Do(r, m.wallClock())
	if w.keepTimeline && r.Op != Look {
		w.log(m.name, "for %s: %v: %v", from.name, r, reply)
	}
	w.judge.checkKey(m, r, before)
	for range m.copies() {
		if from.cuts[m.index].from > w.now {
			continue
		}
		w.push(event{at: w.now + m.delay(), actor: from, life: sender, run: func() { answer(reply) }})
	}
}

// copies returns how often a message arrives.
func (a *actor) copies() int {
	switch p := a.net.IntN(100); {
	case a.w.faultsOver:
		return 1
	case p < 2 || a.w.badNetwork && p < 8:
		return 0
	case p > 96:
		return 2
	}
	return 1
}

// delay returns how long a message takes: usually about a millisecond, sometimes much more, and
// occasionally longer than any lease.
func (a *actor) delay() time.Duration {
	switch p := a.net.IntN(100); {
	case a.w.faultsOver || p < 90:
		return between(a.net, 100*time.Microsecond, 3*time.Millisecond)
	case p < 98 && !a.w.badNetwork:
		return between(a.net, 0, 100*time.Millisecond)
	}
	return between(a.net, 0, 3*maxTTL)
}

// log adds a line to the timeline.
func (w *world) log(who, format string, args ...any) {
	if w.keepTimeline {
		w.timeline = append(w.timeline, fmt.Sprintf("%12.3fms  %-9s ", float64(w.now)/1e6, who)+fmt.Sprintf(format, args...))
	}
}

// A machine is a node and its place in the world.
type machine struct {
	actor
	node  *Node
	index int
	runs  int
	saved memory // the memory on disk
}

// wallClock returns the node's wall clock, by which its keys expire.
func (m *machine) wallClock() time.Duration { return year + m.clock.read(m.w.now) }

// peek returns the key of a lock, or a free key if it has expired.
func (m *machine) peek(lock int) key {
	if k := m.node.memory.locks[lock]; m.wallClock() <= k.end {
		return k
	}
	return key{}
}

// newRunID returns a run_id that no node has had before.
func (m *machine) newRunID() string {
	m.runs++
	return fmt.Sprintf("%s.%d", m.name, m.runs)
}

// crash ends the node's run, and begins another one after down, with the memory left and the
// clock moved by step.
func (m *machine) crash(down, step time.Duration, left memory) {
	m.life++
	m.pausedUntil = m.w.now + down
	m.clock.jump(m.w.now, step)
	m.node.Restart(m.newRunID(), left)
}

// nonVoting returns the number of nodes that do not vote.
func (w *world) nonVoting() (n int) {
	for _, m := range w.nodes {
		if !m.node.Admitted() {
			n++
		}
	}
	return n
}
