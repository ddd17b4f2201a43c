package quorumtest

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// Some breaks need so many coincidences that random schedules hardly find them. Each of these
// schedules is made for one break. It ends with two acquisitions, of which one is wrong if the
// protocol is broken in that way, and none if it is sound.

// A scenario has three nodes with given counters. Requests arrive at a node when the
// schedule says so.
type scenario struct {
	nodes  [3]*Node
	offset [3]time.Duration // of the nodes' clocks
}

func newScenario(broken Break, counters ...uint64) *scenario {
	s := new(scenario)
	for i := range s.nodes {
		s.nodes[i] = NewNode("run", 1, 1, broken)
		s.nodes[i].Init()
		s.nodes[i].memory.counters[0] = counters[i]
	}
	return s
}

// send makes a request arrive at a node.
func (s *scenario) send(node int, r Request) Answer { return s.nodes[node].Do(r, s.offset[node]) }

// expireKeys makes the clock of a node jump, so that its keys expire.
func (s *scenario) expireKeys(node int) { s.offset[node] += time.Hour }

// A scriptedClient makes one attempt in a scenario. The client's clock stands still.
type scriptedClient struct {
	s       *scenario
	nonce   uint64
	attempt quorum.Attempt
	step    quorum.Step
}

func (s *scenario) newClient(nonce uint64) *scriptedClient {
	return &scriptedClient{s: s, nonce: nonce, attempt: quorum.Params{Nodes: 3, MaxTTL: time.Minute}.Attempt(now(),
		time.Minute)}
}

// now returns what the clients' clocks show.
func now() driver.Instant { return driver.Instant{}.Add(time.Hour) }

// acquire makes the attempt's request arrive at a node, and the answer at the client.
func (p *scriptedClient) acquire(node int) {
	if r := p.acquireUnanswered(node); r.OK {
		p.step = p.attempt.Granted(node, r.Counter, now())
	} else {
		p.step = p.attempt.Refused(node, now())
	}
}

// acquireUnanswered makes the attempt's request arrive at a node, perhaps once more. The client
// does not receive the answer.
func (p *scriptedClient) acquireUnanswered(node int) Answer {
	return p.s.send(node, Request{Op: Ask, Nonce: p.nonce, TTL: time.Minute, Tokens: 1})
}

// raise makes the raise of the attempt arrive at a node, and the answer at the client.
func (p *scriptedClient) raise(node int) {
	if p.s.send(node, Request{Op: Raise, Nonce: p.nonce, Token: p.step.Target}).OK {
		p.step = p.attempt.Raised(node, now())
	} else {
		p.step = p.attempt.Refused(node, now())
	}
}

func (p *scriptedClient) free(node int) { p.s.send(node, Request{Op: Free, Nonce: p.nonce}) }

// token returns the attempt's token, or 0 if it has none.
func (p *scriptedClient) token() uint64 {
	if p.step.Verdict != quorum.Won {
		return 0
	}
	return p.step.Target
}

func TestDirected(t *testing.T) {
	tests := []struct {
		broken Break
		why    string
		// The second begins after the first has its token, or has an equal token.
		run      func(s *scenario) (first, second *scriptedClient)
		counters []uint64
	}{
		{
			broken:   RaiseAnyone,
			why:      "A counts a node that is B's by now, and B counts it too",
			counters: []uint64{1, 2, 2},
			run: func(s *scenario) (*scriptedClient, *scriptedClient) {
				a, b := s.newClient(1), s.newClient(2)
				a.acquire(0)
				a.acquire(1) // 2 and 3: node 0 is to be raised to 3
				s.expireKeys(0)
				b.acquire(0)
				b.acquire(2) // 3 and 3
				a.raise(0)   // too late
				return b, a
			},
		},
		{
			broken:   RaiseDown,
			why:      "a request that is repeated takes the node again for B, and B's raise undoes what A counted",
			counters: []uint64{0, 1, 2},
			run: func(s *scenario) (*scriptedClient, *scriptedClient) {
				a, b, c := s.newClient(1), s.newClient(2), s.newClient(3)
				b.acquire(0)
				b.acquire(1) // 1 and 2: node 0 is to be raised to 2
				s.expireKeys(0)
				a.acquire(0)
				a.acquire(2) // 2 and 3
				a.raise(0)
				a.free(0)
				b.acquireUnanswered(0) // late, and once more
				b.raise(0)             // from 5 down to 2
				s.expireKeys(0)        // B dies
				s.expireKeys(1)
				c.acquire(0)
				c.acquire(1)
				return a, c
			},
		},
	}
	for _, tt := range tests {
		t.Run(string(tt.broken), func(t *testing.T) {
			for _, broken := range []Break{Sound, tt.broken} {
				first, second := tt.run(newScenario(broken, tt.counters...))
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
