package quorumtest

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// Some ways to be wrong need so many coincidences that random schedules hardly find them. These are schedules made for them: each ends
// with two acquisitions of which one is wrong if that is broken, and none if it is not.

// A stage has three nodes, whose counters are as given, and lets requests arrive when a schedule says so.
type stage struct {
	nodes [3]*Node
	shift [3]time.Duration // of the nodes' clocks
}

func newStage(broken Break, counters ...uint64) *stage {
	s := new(stage)
	for i := range s.nodes {
		s.nodes[i] = NewNode("run", 0, 1, 1, broken)
		s.nodes[i].Init()
		s.nodes[i].memory.counters[0] = counters[i]
	}
	return s
}

// do has a request arrive at a node.
func (s *stage) do(node int, r Request) Answer { return s.nodes[node].Do(r, s.shift[node]) }

// lapse has the keys of a node expire: its clock jumps.
func (s *stage) lapse(node int) { s.shift[node] += time.Hour }

// A player is a client's attempt on a stage. The client's clock stands still.
type player struct {
	s       *stage
	nonce   uint64
	attempt quorum.Attempt
	step    quorum.Step
}

func (s *stage) player(nonce uint64) *player {
	return &player{s: s, nonce: nonce, attempt: quorum.Params{Nodes: 3, MaxTTL: time.Minute}.Attempt(now(), time.Minute)}
}

// now is what the clients' clocks show.
func now() driver.Instant { return driver.Instant{}.Add(time.Hour) }

// ask has the attempt's request arrive at a node, and its answer at the client.
func (p *player) ask(node int) {
	if r := p.askOnly(node); r.OK {
		p.step = p.attempt.Granted(node, r.Counter, now())
	} else {
		p.step = p.attempt.Refused(node, now())
	}
}

// askOnly has the attempt's request arrive at a node, once more perhaps, and its answer nowhere.
func (p *player) askOnly(node int) Answer {
	return p.s.do(node, Request{Op: Ask, Nonce: p.nonce, TTL: time.Minute, Tokens: 1})
}

// raise has the raise that the attempt wanted arrive at a node, and its answer at the client.
func (p *player) raise(node int) {
	if p.s.do(node, Request{Op: Raise, Nonce: p.nonce, Token: p.step.Target}).OK {
		p.step = p.attempt.Raised(node, now())
	} else {
		p.step = p.attempt.Refused(node, now())
	}
}

func (p *player) free(node int) { p.s.do(node, Request{Op: Free, Nonce: p.nonce}) }

// token is the attempt's, or 0 if it has none.
func (p *player) token() uint64 {
	if p.step.Verdict != quorum.Won {
		return 0
	}
	return p.step.Target
}

func TestDirected(t *testing.T) {
	tests := []struct {
		broken Break
		why    string
		play   func(s *stage) (first, second *player) // second begins after first has its token, or has an equal one
		begin  []uint64
	}{
		{
			broken: RaiseAnyone,
			why:    "A counts a node that is B's by now, and B counts it too",
			begin:  []uint64{1, 2, 2},
			play: func(s *stage) (*player, *player) {
				a, b := s.player(1), s.player(2)
				a.ask(0)
				a.ask(1) // 2 and 3: node 0 is to be raised to 3
				s.lapse(0)
				b.ask(0)
				b.ask(2)   // 3 and 3
				a.raise(0) // too late
				return b, a
			},
		},
		{
			broken: RaiseDown,
			why:    "a request that is repeated takes the node again for B, and B's raise undoes what A counted",
			begin:  []uint64{0, 1, 2},
			play: func(s *stage) (*player, *player) {
				a, b, c := s.player(1), s.player(2), s.player(3)
				b.ask(0)
				b.ask(1) // 1 and 2: node 0 is to be raised to 2
				s.lapse(0)
				a.ask(0)
				a.ask(2) // 2 and 3
				a.raise(0)
				a.free(0)
				b.askOnly(0) // late, once more
				b.raise(0)   // from 5 down to 2
				s.lapse(0)   // B dies
				s.lapse(1)
				c.ask(0)
				c.ask(1)
				return a, c
			},
		},
	}
	for _, tt := range tests {
		t.Run(string(tt.broken), func(t *testing.T) {
			for _, broken := range []Break{Sound, tt.broken} {
				first, second := tt.play(newStage(broken, tt.begin...))
				if first.token() == 0 {
					t.Fatalf("broken %q: the first has no token: %+v", broken, first.step)
				}
				wrong := second.token() != 0 && second.token() <= first.token()
				t.Logf("broken %q: tokens %d and %d", broken, first.token(), second.token())
				if wrong != (broken != Sound) {
					t.Errorf("broken %q: tokens %d and %d: wrong is %v; %s", broken, first.token(), second.token(), wrong, tt.why)
				}
			}
		})
	}
}
