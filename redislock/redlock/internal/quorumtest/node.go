package quorumtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// An Op is what a node is asked to do.
type Op uint8

const (
	Ask    Op = iota // take the key if it is free
	Raise            // raise the counter to Token, under the key
	Extend           // extend the key's life, or take it again
	Free             // give the key up
	Look             // tell the node's standing
	Mark             // mark the admission under way
	Read             // tell the counters
	Admit            // raise the counters, and let the node vote
)

func (o Op) String() string {
	return [...]string{"ask", "raise", "extend", "free", "look", "mark", "read", "admit"}[o]
}

// A Request is one call of the script, for one lock.
type Request struct {
	Op       Op
	Name     int           // of the lock
	Nonce    uint64        // of the attempt; never 0
	TTL      time.Duration // Ask, Extend: of the lease. Free: for how long the key stays taken all the same
	Hint     uint64        // Ask: what the token should be, at least
	Tokens   uint64        // Ask: how many
	Token    uint64        // Raise: the target. Extend: the lease's last token
	Run      string        // Admit
	Mark     string        // Mark, Admit
	Counters quorum.Counters
}

func (r Request) String() string {
	switch r.Op {
	case Ask:
		return fmt.Sprintf("ask lock %d for #%d, %v, hint %d, %d tokens", r.Name, r.Nonce, r.TTL, r.Hint, r.Tokens)
	case Raise, Extend:
		return fmt.Sprintf("%v lock %d of #%d, token %d", r.Op, r.Name, r.Nonce, r.Token)
	case Free:
		return fmt.Sprintf("free lock %d of #%d", r.Name, r.Nonce)
	case Mark:
		return "mark " + r.Mark
	case Admit:
		return fmt.Sprintf("admit %s under mark %s with %v", r.Run, r.Mark, r.Counters)
	default:
		return r.Op.String()
	}
}

// An Answer is what a node says. OK means that it did what it was asked, or for Read that it is admitted.
type Answer struct {
	OK         bool
	Unadmitted bool // that is why not
	Counter    uint64
	Standing   quorum.Standing
	Uptime     time.Duration // what the server would tell: by its wall clock
	Counters   quorum.Counters
}

func (a Answer) String() string {
	switch {
	case a.Unadmitted:
		return "unadmitted"
	case !a.OK:
		return "no"
	case a.Counter != 0:
		return fmt.Sprintf("ok, counter %d", a.Counter)
	case a.Counters != nil:
		return fmt.Sprintf("ok, counters %v", a.Counters)
	case a.Standing != quorum.Standing{}:
		return fmt.Sprintf("ok, %+v", a.Standing)
	default:
		return "ok"
	}
}

// A Node is a model of one Redis and the script that runs in it. What it is asked it does in one step, as Redis does. It is not safe for
// concurrent use.
//
// What it leaves out, because nothing here depends on it: keys of other types and other clusters' clients, which are refused;
// publications; and what the values of keys say to people.
type Node struct {
	run     string        // the run_id
	started time.Duration // by the wall clock
	broken  Break
	memory  memory
}

// A memory is what a node may forget.
type memory struct {
	admitted string          // the run_id under which it was admitted
	mark     [2]string       // a run_id, and the text for it
	counters quorum.Counters // by stripe
	locks    []key           // by name
}

// A key is that of a lock. The zero value is that of a free one.
type key struct {
	nonce   uint64
	counter uint64        // the node's, when the key was taken or the counter was raised; the lease's token, once it was extended
	end     time.Duration // by the node's wall clock; the last moment at which it is there
}

// kept is the nonce of a key that is nobody's.
const kept = ^uint64(0)

// NewNode starts a node that remembers nothing, with so many stripes of names.
func NewNode(run string, now time.Duration, locks, stripes int, broken Break) *Node {
	return &Node{run: run, started: now, broken: broken, memory: blank(locks, stripes)}
}

func blank(locks, stripes int) memory {
	return memory{counters: make(quorum.Counters, stripes), locks: make([]key, locks)}
}

func (m memory) clone() memory {
	m.counters, m.locks = slices.Clone(m.counters), slices.Clone(m.locks)
	return m
}

// Restart begins a new run at now, with that memory.
func (n *Node) Restart(run string, now time.Duration, m memory) {
	n.run, n.started, n.memory = run, now, m.clone()
}

// Init admits the node as an operator does, who knows that there was nothing to forget.
func (n *Node) Init() { n.memory.admitted = n.run }

// Admitted reports whether the node votes.
func (n *Node) Admitted() bool { return n.memory.admitted == n.run }

// Do does what it is asked. Now is the node's wall clock, since 1970.
func (n *Node) Do(r Request, now time.Duration) Answer {
	switch r.Op {
	case Free:
		return n.free(r, now)
	case Look:
		s := quorum.Standing{Run: n.run, Admitted: n.memory.admitted}
		if n.memory.mark[0] == n.run {
			s.Mark = n.memory.mark[1]
		}
		return Answer{OK: true, Standing: s, Uptime: now - n.started}
	case Mark:
		if !n.Admitted() && n.memory.mark[0] != n.run {
			n.memory.mark = [2]string{n.run, r.Mark}
		}
		return Answer{OK: true}
	case Read:
		return Answer{OK: n.votes(), Unadmitted: !n.votes(), Counters: slices.Clone(n.memory.counters)}
	case Admit:
		return n.admit(r)
	}
	if !n.votes() {
		return Answer{Unadmitted: true}
	}
	switch r.Op {
	case Ask:
		return n.ask(r, now)
	case Raise:
		return n.raise(r, now)
	default:
		return n.extend(r, now)
	}
}

func (n *Node) votes() bool { return n.Admitted() || n.broken == VoteAtOnce }

// key returns the key of a lock, and frees it if it has expired.
func (n *Node) key(lock int, now time.Duration) *key {
	k := &n.memory.locks[lock]
	if now > k.end {
		*k = key{}
	}
	return k
}

func (n *Node) counter(lock int) *uint64 { return &n.memory.counters[lock%len(n.memory.counters)] }

// ahead is how far a client's hint may be ahead of the node's clock.
const ahead = time.Minute

func (n *Node) ask(r Request, now time.Duration) Answer {
	k, c := n.key(r.Name, now), n.counter(r.Name)
	switch k.nonce {
	case r.Nonce:
		k.end = now + r.TTL
	case 0:
		*c = max(*c+1, min(r.Hint, uint64((now+ahead).Microseconds()))) + r.Tokens - 1
		*k = key{nonce: r.Nonce, counter: *c, end: now + r.TTL}
	default:
		return Answer{}
	}
	return Answer{OK: true, Counter: k.counter}
}

func (n *Node) raise(r Request, now time.Duration) Answer {
	k, c := n.key(r.Name, now), n.counter(r.Name)
	if k.nonce != r.Nonce && n.broken != RaiseAnyone || *c > r.Token && n.broken != RaiseDown {
		return Answer{}
	}
	*c = r.Token
	if k.nonce == r.Nonce {
		k.counter = r.Token
	}
	return Answer{OK: true}
}

func (n *Node) extend(r Request, now time.Duration) Answer {
	k, c := n.key(r.Name, now), n.counter(r.Name)
	switch {
	case k.nonce == r.Nonce:
		k.counter, k.end = r.Token, now+r.TTL
	case k.nonce == 0 && (*c <= r.Token || n.broken == RetakeBlind):
		*c = r.Token
		*k = key{nonce: r.Nonce, counter: r.Token, end: now + r.TTL}
	case n.broken == ExtendAnyone:
		k.end = now + r.TTL
	default:
		return Answer{}
	}
	return Answer{OK: true}
}

func (n *Node) free(r Request, now time.Duration) Answer {
	k, c := n.key(r.Name, now), n.counter(r.Name)
	if k.nonce != r.Nonce && (k.nonce == 0 || n.broken != FreeAnyone) {
		return Answer{}
	}
	*c++ // so that an Extend that is late can't take it again
	*k = key{}
	if r.TTL > 0 {
		*k = key{nonce: kept, end: now + r.TTL}
	}
	return Answer{OK: true}
}

func (n *Node) admit(r Request) Answer {
	if r.Run != n.run || n.memory.mark != [2]string{r.Run, r.Mark} {
		return Answer{}
	}
	for i, c := range r.Counters {
		n.memory.counters[i] = max(n.memory.counters[i], c)
	}
	n.memory.admitted, n.memory.mark = n.run, [2]string{}
	return Answer{OK: true}
}
