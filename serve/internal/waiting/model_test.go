package waiting

import (
	"fmt"
	"testing"
)

// The model has replicas, clients, and a stranger that want one lock: two replicas and one client,
// or one replica and two clients. Replicas share nothing but the store, so the clients of the other
// replica are strangers. A client sends its request to each replica, again and again, may vanish,
// and may withdraw. Answers of the store come late, get lost, or say that a grant has lapsed.
const two = 2

// stranger is the owner of the lock who is none of the clients.
const stranger = two + 1

// A situation is all that the model knows: the store, the places, and the clients.
type situation struct {
	replicas, clients int

	owner byte // the client that the store has granted the lock to, and 0
	final bool // and any replica may hand it out

	places    [two][two]cell // of a replica, for a client
	releasing [two][two]byte // grants whose places are gone: 1 is the one in the store, 2 one that has lapsed
	queues    [two][two]byte // clients in a replica's queue, plus one

	told      [two]bool      // the client has the hold
	withdrawn [two]bool      // the client has withdrawn it
	refuses   [two][two]bool // a replica has heard of that
}

// A cell is a place, or none.
type cell struct {
	State

	used, timer, cancelled bool
	working                Action // Ask, Confirm, Release or End
	owns                   bool   // the grant in the store is this place's
}

// A run is one step from a situation to the next.
type run struct {
	situation

	wrong string
}

// on takes an event in at a replica's place for a client.
func (r *run) on(replica, client int, e Event) {
	p := &r.places[replica][client]
	wasFinal := r.final
	next, do := p.State.On(e)
	p.State = next
	if e >= StoreGranted && e <= Released {
		p.working = End
	}
	for _, a := range do {
		switch a {
		case Ask, Confirm:
			p.working, p.cancelled = a, false
		case Release:
			if p.owns && wasFinal && !r.withdrawn[client] {
				r.wrong = "a replica releases a hold that the client may have by another one"
			}
			r.releasing[replica][client] = 2
			if p.owns {
				r.releasing[replica][client] = 1
			}
			r.dequeue(replica, client)
			*p = cell{}
			return
		case Requeue:
			r.enqueue(replica, client, 1)
		case Dequeue:
			r.dequeue(replica, client)
		case Cancel:
			p.cancelled = true
		case StartTimer:
			p.timer = true
		case StopTimer:
			p.timer = false
		case AnswerGrant:
			if !p.owns || !r.final || r.refuses[replica][client] {
				r.wrong = "a client is told of a grant that is not its own, not final, or withdrawn"
			}
			r.told[client] = true
		case End:
			if p.owns && !r.final && !p.Final { // after a failed confirmation nobody knows: it lapses
				r.wrong = "a pending grant is left that no replica knows of"
			}
			r.dequeue(replica, client)
			*p = cell{}
			return
		}
	}
	if e == StoreGranted || e == StorePromised || e == StoreFailed {
		r.dequeue(replica, client)
	}
}

func (r *run) enqueue(replica, client, behind int) {
	q := &r.queues[replica]
	if q[0] == 0 {
		q[0] = byte(client + 1)
		r.on(replica, client, Turn)
		return
	}
	q[behind] = byte(client + 1)
}

func (r *run) dequeue(replica, client int) {
	q := &r.queues[replica]
	switch byte(client + 1) {
	case q[0]:
		*q = [two]byte{q[1], 0}
		if q[0] != 0 && r.places[replica][q[0]-1].Phase == Queued {
			r.on(replica, int(q[0]-1), Turn)
		}
	case q[1]:
		q[1] = 0
	}
}

// checkQueues checks that a place that waits for its turn is behind one that has it.
func (r *run) checkQueues() {
	for i, q := range r.queues {
		for c, p := range r.places[i] {
			if p.used && p.Phase == Queued && q[1] != byte(c+1) {
				r.wrong = "a place waits for a turn that nobody gives it"
			}
		}
	}
}

// free lets the store forget the grant.
func (r *run) free() {
	r.owner, r.final = 0, false
	for i := range two {
		for j := range two {
			r.places[i][j].owns = false
			r.releasing[i][j] = min(r.releasing[i][j]*2, 2)
		}
	}
}

// steps calls try with everything that can happen next.
func (s situation) steps(try func(what string, step func(r *run))) {
	for c := range s.clients {
		if s.told[c] && s.owner == byte(c+1) {
			try(fmt.Sprint("client ", c, " releases"), func(r *run) { r.free(); r.told[c] = false })
		}
		if !s.told[c] && !s.withdrawn[c] {
			try(fmt.Sprint("client ", c, " withdraws"), func(r *run) { r.withdrawn[c] = true })
		}
		for i := range s.replicas {
			s.stepsAt(i, c, func(what string, step func(r *run)) {
				try(fmt.Sprintf("%s at replica %d for client %d", what, i, c), step)
			})
		}
	}
	switch s.owner {
	case 0:
		try("a stranger comes", func(r *run) { r.owner, r.final = stranger, true })
	case stranger:
		try("the stranger goes", (*run).free)
	default:
		c := s.owner - 1
		isRenewed := false
		for i := range s.replicas {
			isRenewed = isRenewed || s.places[i][c].owns || s.releasing[i][c] == 1
		}
		if s.told[c] || s.withdrawn[c] || !isRenewed {
			try("the grant lapses", func(r *run) { r.told[c] = false; r.free() })
		}
	}
}

// stepsAt calls try with what can happen next at one replica for one client.
func (s situation) stepsAt(i, c int, try func(what string, step func(r *run))) {
	p, mine := s.places[i][c], s.owner == byte(c+1)
	event := func(what string, ok bool, e Event) {
		if ok {
			try(what, func(r *run) { r.on(i, c, e) })
		}
	}
	if !s.told[c] && !s.withdrawn[c] && !s.refuses[i][c] {
		try("a request", func(r *run) {
			if !p.used {
				r.places[i][c] = cell{State: State{Waits: true}, used: true, working: End}
				r.on(i, c, PollCame)
				r.enqueue(i, c, 1)
				return
			}
			r.on(i, c, PollCame)
		})
	}
	if s.withdrawn[c] && !s.refuses[i][c] {
		try("the withdrawal", func(r *run) {
			r.refuses[i][c] = true
			if p.used {
				r.on(i, c, ClientWithdrew)
			}
			if r.owner == byte(c+1) && r.final { // it releases by the id what it finds
				r.free()
			}
		})
	}
	event("a request ends", p.Polled, PollGone)
	event("a request is over", p.Polled && !p.Over, PollOver)
	event("the timer", p.timer, ClientGone)
	event("why it waits", p.used && p.Phase <= Asking && !p.Told && s.owner != 0, StoreTold)
	granted := func(what string, e Event) {
		try(what, func(r *run) {
			r.owner, r.final, r.places[i][c].owns = byte(c+1), e == StoreGranted, true
			r.on(i, c, e)
		})
	}
	switch asks := p.working == Ask; {
	case asks && s.owner == 0:
		if p.Told || !p.Polled { // the request waits, or was sent while the client was away
			granted("a promise", StorePromised)
		}
		if !p.Told {
			granted("a grant", StoreGranted)
		}
	case asks && mine && s.final && !p.Told:
		try("its own grant", func(r *run) { r.places[i][c].owns = true; r.on(i, c, StoreGranted) })
	}
	event("a failed request", p.working == Ask && (p.cancelled || !p.Told), StoreFailed)
	if p.working == Confirm {
		if p.owns {
			try("a confirmation", func(r *run) { r.final = true; r.on(i, c, Confirmed) })
			try("a lost confirmation", func(r *run) { r.final = true; r.on(i, c, ConfirmFailed) })
		} else {
			event("a late confirmation", true, GrantLost)
		}
		event("a failed confirmation", true, ConfirmFailed)
	}
	if how := s.releasing[i][c]; how != 0 {
		try("a release", func(r *run) {
			r.releasing[i][c] = 0
			if how == 1 {
				r.free()
			}
		})
	}
}

// TestModel goes through all situations. Whatever has happened, a client that has not withdrawn can
// still get the lock.
func TestModel(t *testing.T) {
	t.Run("Replicas", func(t *testing.T) { checkModel(t, situation{replicas: two, clients: 1}) })
	t.Run("Clients", func(t *testing.T) { checkModel(t, situation{replicas: 1, clients: two}) })
}

func checkModel(t *testing.T, first situation) {
	type origin struct {
		from situation
		what string
	}
	seen := map[situation]origin{first: {}}
	todo := []situation{first}
	before := map[situation][]situation{}
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		s.steps(func(what string, step func(r *run)) {
			r := run{situation: s}
			step(&r)
			r.checkQueues()
			if r.wrong != "" {
				for ; s != first; s = seen[s].from {
					what = seen[s].what + "\n" + what
				}
				t.Fatalf("%s, after:\n%s", r.wrong, what)
			}
			before[r.situation] = append(before[r.situation], s)
			if _, ok := seen[r.situation]; !ok {
				seen[r.situation] = origin{s, what}
				todo = append(todo, r.situation)
			}
		})
	}
	for c := range first.clients {
		can := map[situation]bool{}
		for s := range seen {
			if s.told[c] {
				can[s] = true
				todo = append(todo, s)
			}
		}
		for len(todo) > 0 {
			s := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, b := range before[s] {
				if !can[b] {
					can[b] = true
					todo = append(todo, b)
				}
			}
		}
		for s := range seen {
			if !can[s] && !s.withdrawn[c] {
				t.Fatalf("client %d can't get the lock any more: %+v", c, s)
			}
		}
	}
	t.Logf("%d situations", len(seen))
}
