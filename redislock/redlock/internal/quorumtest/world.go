package quorumtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
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
	events uint64        // that were queued so far
	nonces uint64

	nodes   []*machine
	clients []*client
	agents  []*agent
	rough   bool          // the network is worse than usual
	patient time.Duration // how long a client waits for one node
	calm    bool          // the trouble is over
	settled int           // clients that got a lock since

	judge judge
	lines []string // the timeline, if it is kept
	keep  bool
}

// An event is something that will happen to an actor.
type event struct {
	at    time.Duration
	order uint64 // of those at the same time
	who   *actor
	life  uint64 // of the actor to which it happens; 0: whichever
	do    func()
}

func (e event) before(f event) bool {
	return cmp.Or(cmp.Compare(e.at, f.at), cmp.Compare(e.order, f.order)) < 0
}

// An actor is a process. It has sources of random numbers of its own, so that what one does has no influence on what others draw.
type actor struct {
	w     *world
	name  string
	rng   *rand.Rand // what it does
	net   *rand.Rand // what becomes of what it sends
	clock clock
	wall  time.Duration // how far its wall clock is off, for hints and floors
	until time.Duration // the true time until which it is paused
	life  uint64        // counts its lives; what was to happen to an earlier one does not
	cut   []cut         // from its links to nodes, by node
}

// A cut ends at a true time, for each direction.
type cut struct{ to, from time.Duration }

// source returns a random source of an actor's.
func (w *world) source(name string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.seed, h))
}

func (w *world) actor(name string) actor {
	a := actor{w: w, name: name, rng: w.source(name), net: w.source(name + " net"), life: 1, cut: make([]cut, w.params.Nodes)}
	a.clock = clock{shown: time.Hour + between(a.rng, 0, time.Hour), ppm: a.rng.Int64N(2*maxDrift+1) - maxDrift}
	a.wall = between(a.rng, -w.cell.skew(), w.cell.skew())
	return a
}

// between returns a random duration from lo to hi.
func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(r.Int64N(int64(hi-lo)+1))
}

// chance is true with that probability, in percent.
func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// push queues what happens at a true time.
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

// step has the next event happen. What happens to one who is paused happens to it when it goes on, in the same order.
func (w *world) step() {
	e := w.pop()
	w.now = e.at
	switch {
	case e.life != 0 && e.life != e.who.life:
	case e.who.until > w.now:
		e.at = e.who.until
		w.push(e)
	default:
		e.do()
	}
}

// after has do happen to the actor in its present life, when its clock shows d more.
func (a *actor) after(d time.Duration, do func()) {
	due := a.clock.read(a.w.now) + d
	a.w.push(event{at: a.w.now + d + d/100, who: a, life: a.life, do: func() { // timers are late, and slow clocks are then done
		if left := due - a.clock.read(a.w.now); left > 0 { // it stood still
			a.after(left, do)
			return
		}
		do()
	}})
}

func (a *actor) instant() driver.Instant { return a.clock.instant(a.w.now) }

// year is the wall clock at the beginning, since 1970.
const year = 56 * 365 * 24 * time.Hour

// micros is the actor's wall clock.
func (a *actor) micros() uint64 { return uint64((year + a.w.now + a.wall).Microseconds()) }

// pause stops the actor for d.
func (a *actor) pause(d time.Duration) { a.until = max(a.until, a.w.now+d) }

// send asks a node. What comes back, if anything does, and maybe more than once, is for answer.
func (a *actor) send(node int, r Request, answer func(Answer)) {
	w, m, own := a.w, a.w.nodes[node], a.life
	for range a.copies() {
		if a.cut[node].to > w.now {
			continue
		}
		life := m.life // if the node restarts, it is lost with the connection
		if chance(a.net, 50) {
			life = 0 // or repeated on the next one
		}
		w.push(event{at: w.now + a.delay(), who: &m.actor, life: life, do: func() { w.do(a, own, m, r, answer) }})
	}
}

// do has the node do it, and sends the answer back, to whoever asked, if that life goes on.
func (w *world) do(from *actor, life uint64, m *machine, r Request, answer func(Answer)) {
	before := m.peek(r.Name)
	reply := m.node.Do(r, m.time())
	if w.keep && r.Op != Look {
		w.log(m.name, "for %s: %v: %v", from.name, r, reply)
	}
	w.judge.touched(m, r, before)
	for range m.copies() {
		if from.cut[m.index].from > w.now {
			continue
		}
		w.push(event{at: w.now + m.delay(), who: from, life: life, do: func() { answer(reply) }})
	}
}

// copies is how many times a message arrives.
func (a *actor) copies() int {
	switch p := a.net.IntN(100); {
	case a.w.calm:
		return 1
	case p < 2 || a.w.rough && p < 8:
		return 0
	case p > 96:
		return 2
	}
	return 1
}

// delay is how long a message takes: mostly a millisecond or so, sometimes much more, and now and then longer than any lease.
func (a *actor) delay() time.Duration {
	switch p := a.net.IntN(100); {
	case a.w.calm || p < 90:
		return between(a.net, 100*time.Microsecond, 3*time.Millisecond)
	case p < 98 && !a.w.rough:
		return between(a.net, 0, 100*time.Millisecond)
	}
	return between(a.net, 0, 3*maxTTL)
}

// log adds a line to the timeline.
func (w *world) log(who, format string, args ...any) {
	if w.keep {
		w.lines = append(w.lines, fmt.Sprintf("%12.3fms  %-9s ", float64(w.now)/1e6, who)+fmt.Sprintf(format, args...))
	}
}

// A machine is a node and its place in the world.
type machine struct {
	actor
	node  *Node
	index int
	runs  int
	saved memory // what it has on disk
}

// time is the node's wall clock, by which its keys expire.
func (m *machine) time() time.Duration { return year + m.clock.read(m.w.now) }

// peek returns the key of a lock, if it has not expired.
func (m *machine) peek(lock int) key {
	if k := m.node.memory.locks[lock]; m.time() <= k.end {
		return k
	}
	return key{}
}

// newRun returns a run_id that no node had before.
func (m *machine) newRun() string {
	m.runs++
	return fmt.Sprintf("%s.%d", m.name, m.runs)
}

// crash ends the node's run, and begins another after a while, with that memory and with its clock stepped.
func (m *machine) crash(down, step time.Duration, left memory) {
	m.life++
	m.until = m.w.now + down
	m.clock.jump(m.w.now, step)
	m.node.Restart(m.newRun(), m.time()+down, left)
}

// forgetful returns how many nodes don't vote.
func (w *world) forgetful() (n int) {
	for _, m := range w.nodes {
		if !m.node.Admitted() {
			n++
		}
	}
	return n
}
