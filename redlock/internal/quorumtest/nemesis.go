package quorumtest

import "time"

// A nemesis causes the faults that its cell allows.
type nemesis struct{ actor }

// act causes a fault, and schedules the next one.
func (n *nemesis) act() {
	w := n.w
	if w.faultsOver {
		return
	}
	n.injectFault()
	w.push(event{at: w.now + between(n.rng, 10*time.Millisecond, 800*time.Millisecond), actor: &n.actor, run: n.act})
}

func (n *nemesis) injectFault() {
	w, c := n.w, n.w.clients[n.rng.IntN(len(n.w.clients))]
	switch p := n.rng.IntN(100); {
	case p < 20:
		n.partition()
	case p < 30:
		n.stop(&c.actor, 3*maxTTL)
	case p < 35:
		n.stop(&w.agents[n.rng.IntN(len(w.agents))].actor, 3*maxTTL)
	case p < 45:
		n.stop(&n.machine().actor, 2*maxTTL)
	case p < 50:
		c.crash()
	case p < 55:
		m := n.machine()
		m.saved = m.node.memory.clone()
	case p < 75 && w.cell.forget:
		n.forget(n.machine())
	case p < 85 && w.cell.clocksJump:
		m, by := n.machine(), between(n.rng, -2*maxTTL, 2*maxTTL)
		m.clock.jump(w.now, by)
		w.log(m.name, "'s clock jumps by %v", by)
	case p < 95 && w.cell.clocksStop:
		d := between(n.rng, 0, 3*maxTTL)
		c.pause(d)
		c.clock.stop(w.now, w.now+d)
		w.log(c.name, "stops for %v, and its clock too", d)
	case p < 95 && w.cell.forget && !w.cell.majorityForgets:
		if m := n.machine(); !m.node.Admitted() { // as happens soon after a machine has booted
			by := between(n.rng, 0, time.Minute)
			m.clock.jump(w.now, by)
			w.log(m.name, "'s clock is set forward by %v while it waits", by)
		}
	}
}

func (n *nemesis) machine() *machine { return n.w.nodes[n.rng.IntN(len(n.w.nodes))] }

func (n *nemesis) stop(a *actor, most time.Duration) {
	d := between(n.rng, 0, most)
	a.pause(d)
	n.w.log(a.name, "stops for %v", d)
}

// partition cuts a process off from some nodes, in one direction or in both.
func (n *nemesis) partition() {
	w := n.w
	i := n.rng.IntN(len(w.clients) + len(w.agents))
	var a *actor
	if i < len(w.clients) {
		a = &w.clients[i].actor
	} else {
		a = &w.agents[i-len(w.clients)].actor
	}
	until, way := w.now+between(n.rng, 0, 3*maxTTL), n.rng.IntN(3)
	for node := range w.nodes {
		if !chance(n.rng, 50) {
			continue
		}
		if way != 0 {
			a.cuts[node].to = until
		}
		if way != 1 {
			a.cuts[node].from = until
		}
		w.log(a.name, "is cut off from node %d, %s, until %v", node, [...]string{"inwards", "outwards", "both ways"}[way],
			until)
	}
}

// forget makes a node restart without its memory, with it, or with an older one; or it wipes
// the memory while the node runs. The clock of a node that restarts may be set, as happens when
// a machine boots.
func (n *nemesis) forget(m *machine) {
	w := n.w
	if !w.cell.majorityForgets && m.node.Admitted() && w.nonVoting() >= w.params.Nodes-w.params.Quorum() {
		return
	}
	none := blank(w.locks, w.stripes)
	down, step := between(n.rng, 0, maxTTL/2), time.Duration(0)
	if chance(n.rng, 30) {
		// If the clock is set back, keys that the node remembers live longer by that time.
		step = between(n.rng, -maxTTL, time.Minute)
	}
	what := "restarts blank"
	switch n.rng.IntN(5) {
	case 0:
		m.crash(down, step, m.node.memory)
		what = "restarts with its memory"
	case 1:
		left := m.saved
		if left.counters == nil {
			left = none
		}
		m.crash(down, step, left)
		what = "restarts with an old memory"
	case 2:
		m.node.memory = none
		what, step = "is wiped", 0
	default:
		m.crash(down, step, none)
	}
	w.log(m.name, "%s; its clock steps by %v; run %s", what, step, m.node.run)
}

// heal ends all faults.
func (w *world) heal() {
	w.faultsOver = true
	w.log("world", "all is well again")
	still := func(a *actor) {
		a.pausedUntil = min(a.pausedUntil, w.now)
		a.clock.jump(w.now, 0)
		a.clock.stoppedUntil = 0
		clear(a.cuts)
	}
	for _, m := range w.nodes {
		still(&m.actor)
	}
	for _, a := range w.agents {
		still(&a.actor)
	}
	for _, c := range w.clients {
		still(&c.actor)
	}
}
