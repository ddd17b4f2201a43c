package quorumtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/sniblock/snib/redlock/internal/quorum"
)

// An Op is an operation of a node.
type Op uint8

const (
	Ask      Op = iota // take the key if it is free
	Raise              // raise the counter to Token, if the key has the nonce
	Extend             // extend the key's life, or take it again
	Describe           // change what the key tells people, of which the model knows nothing
	Free               // free the key
	Look               // return the node's standing
	Mark               // mark the admission under way
	Note               // note what the nodes' clocks showed after the mark
	Read               // return the counters
	Admit              // raise the counters, and let the node vote
)

func (o Op) String() string {
	return [...]string{"ask", "raise", "extend", "describe", "free", "look", "mark", "note", "read", "admit"}[o]
}

// A Request is one request to the script, for one lock.
type Request struct {
	Op    Op
	Name  int    // the number of the lock
	Nonce uint64 // identifies the attempt; never 0

	// TTL is the TTL of the lease in Ask and Extend. In Free it is how long the key stays
	// taken after the release.
	TTL time.Duration

	Hint     uint64 // Ask: the least token wanted
	Tokens   uint64 // Ask: the number of tokens
	Token    uint64 // Raise: the target. Extend: the lease's last token
	Run      string // Admit
	Mark     string // Mark, Note, Admit
	Clocks   quorum.Clocks
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

// An Answer is the answer of a node. OK means that the node did what it was asked or, for Read,
// that it is admitted.
type Answer struct {
	OK         bool
	Unadmitted bool // why OK is false
	Counter    uint64
	Standing   quorum.Standing
	Since      quorum.Clocks // what was noted since the mark
	Now        uint64        // the node's clock
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

// A Node is a model of one Redis and the scripts that run in it. It carries out each request in one
// step, as Redis does. It is not safe for concurrent use.
//
// It leaves out what does not matter here: keys of other types and clients of other clusters,
// which are refused; publications; and what the values of keys tell people.
type Node struct {
	run    string // the run_id
	broken Break
	memory memory
}

// A memory is what a node may forget.
type memory struct {
	admitted string          // the run_id under which it was admitted
	mark     [2]string       // a run_id, and the text of the mark
	since    quorum.Clocks   // belongs to the mark
	counters quorum.Counters // by stripe
	locks    []key           // by name
}

// A key is the key of a lock. The zero value is a free key.
type key struct {
	nonce uint64

	// counter is the node's counter when the key was taken or the counter was raised. Once the
	// lease has been extended, it is the lease's token.
	counter uint64

	// end is the last moment at which the key exists, by the node's wall clock.
	end time.Duration
}

// keptNonce is the nonce of a key that was released but is kept closed.
const keptNonce = ^uint64(0)

// NewNode starts a node without memory, with the given number of locks and stripes.
func NewNode(run string, locks, stripes int, broken Break) *Node {
	return &Node{run: run, broken: broken, memory: blank(locks, stripes)}
}

func blank(locks, stripes int) memory {
	return memory{counters: make(quorum.Counters, stripes), locks: make([]key, locks)}
}

func (m memory) clone() memory {
	m.counters, m.locks = slices.Clone(m.counters), slices.Clone(m.locks)
	return m
}

// Restart begins a new run, with the memory m.
func (n *Node) Restart(run string, m memory) { n.run, n.memory = run, m.clone() }

// Init admits the node, as an operator does who knows that the node can't have forgotten anything.
func (n *Node) Init() { n.memory.admitted = n.run }

// Admitted reports whether the node votes.
func (n *Node) Admitted() bool { return n.memory.admitted == n.run }

// Do carries out a request. The argument now is the node's wall clock, since 1970.
func (n *Node) Do(r Request, now time.Duration) Answer {
	switch r.Op {
	case Free:
		return n.free(r, now)
	case Describe:
		return Answer{OK: n.key(r.Name, now).nonce == r.Nonce}
	case Look:
		s := quorum.Standing{Run: n.run, Admitted: n.memory.admitted}
		if n.memory.mark[0] == n.run {
			s.Mark = n.memory.mark[1]
		}
		return Answer{OK: true, Standing: s, Since: n.memory.since, Now: uint64(now.Microseconds())}
	case Mark:
		if !n.Admitted() && n.memory.mark[0] != n.run {
			n.memory.mark, n.memory.since = [2]string{n.run, r.Mark}, quorum.Clocks{}
		}
		return Answer{OK: true}
	case Note:
		for i, t := range r.Clocks {
			if n.memory.mark == [2]string{n.run, r.Mark} && n.memory.since[i] == 0 {
				n.memory.since[i] = t
			}
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

// key returns the key of a lock, and frees it first if it has expired.
func (n *Node) key(lock int, now time.Duration) *key {
	k := &n.memory.locks[lock]
	if now > k.end {
		*k = key{}
	}
	return k
}

func (n *Node) counter(lock int) *uint64 { return &n.memory.counters[lock%len(n.memory.counters)] }

// maxHintAhead is how far a client's hint may be ahead of the node's clock.
const maxHintAhead = time.Minute

func (n *Node) ask(r Request, now time.Duration) Answer {
	k, c := n.key(r.Name, now), n.counter(r.Name)
	switch {
	case k.nonce == r.Nonce:
		k.end = max(k.end, now+r.TTL)
	case k.nonce == 0:
		*c = max(*c+1, min(r.Hint, uint64((now+maxHintAhead).Microseconds()))) + r.Tokens - 1
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
		k.counter, k.end = r.Token, max(k.end, now+r.TTL)
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
	*c++ // so that a late Extend can't take it again
	*k = key{}
	if r.TTL > 0 {
		*k = key{nonce: keptNonce, end: now + r.TTL}
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
