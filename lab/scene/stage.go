package scene

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/lab/pattern"
	"github.com/sniblock/snib/lab/timeline"
)

// A run is what the acts of a scene share.
type run struct {
	scene     Scene
	t         testing.TB
	audience  Audience
	started   bool              // the audience has been told that servers are started
	redis     *redisServer      // nil before the first use
	nodes     []*redistest.Node // likewise
	postgres  *postgresServer   // likewise
	zookeeper *zookeeperServer  // likewise
}

// A Stage is where an act is played.
type Stage struct {
	*run
	ctx   context.Context
	began time.Time

	look    func() []string // returns what the server's lane shows of its state
	stock   func() int      // reads the stock
	release func()          // closes what the act opened, or is nil

	clients []*Client

	mu     sync.Mutex
	quiet  bool     // nothing is shown
	shown  []string // what look returned last
	damage Damage
	sold   int
}

// A failure is what methods of a stage panic with. It ends the act.
type failure struct{ error }

// failf ends the act.
func failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// tooBusy ends the act because the machine did not keep up with it.
func (s *Stage) tooBusy() { panic(failure{ErrTooBusy}) }

// check ends the act if err is not nil.
func check(what string, err error) {
	if err != nil {
		failf("%s: %w", what, err)
	}
}

// play plays an act.
func (r *run) play(ctx context.Context, act Act) error {
	s := &Stage{run: r, ctx: ctx}
	r.audience.Begin(act)
	s.began = time.Now()
	err := s.act(act)
	if s.release != nil {
		defer s.release()
	}
	if err != nil {
		if s.isTooBusy() {
			err = ErrTooBusy
		}
		return err
	}
	result := Result{Damage: s.damage, Stock: s.stock(), Sold: s.sold}
	result.Damage.Lost = s.sold - (OpeningStock - result.Stock)
	switch {
	case result.Damage == act.want:
	case s.isTooBusy():
		return ErrTooBusy
	default:
		return fmt.Errorf("the damage is: %v; it should be: %v", result.Damage, act.want)
	}
	r.audience.End(act, result)
	return nil
}

// act plays an act up to its end, or its failure. When it returns, the clients have ended, and
// nothing happens any more.
func (s *Stage) act(act Act) (err error) {
	defer func() {
		for _, c := range s.clients {
			c.end()
		}
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p) // the failure of a server is one of livetest.Outside
		}
	}()
	act.play(s)
	return nil
}

// starting tells the audience which servers are started, once for both acts.
func (s *Stage) starting(servers string) {
	if !s.started {
		s.audience.Starting(servers)
	}
	s.started = true
}

// Begin begins the time of the timeline: what was before is no part of the story.
func (s *Stage) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown, s.began = s.look(), time.Now()
}

// block counts a job that can never be done.
func (s *Stage) block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage.Blocked++
}

// split counts a round in which each client got some of the servers, and so nobody got the lock.
func (s *Stage) split() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage.Split++
}

// overwritten counts that a loser changed the winner's expiry.
func (s *Stage) overwritten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage.Overwritten++
}

// isTooBusy reports whether a client lost its lease although the scene did not make it lose it.
func (s *Stage) isTooBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.clients, func(c *Client) bool { return c.lost && !c.mayLose })
}

// TB is for packages of servers, such as redistest. Only their functions may use it.
func (s *Stage) TB() testing.TB { return s.t }

// Say shows a line in a lane.
func (s *Stage) Say(lane, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(lane, format, args...)
}

// say shows a line in a lane, and what has changed on the server. The caller holds s.mu.
func (s *Stage) say(lane, format string, args ...any) {
	if s.quiet {
		return
	}
	e := timeline.Event{At: time.Since(s.began), Lane: lane, Text: fmt.Sprintf(format, args...)}
	for _, c := range s.clients {
		if c.holds() {
			e.Holders = append(e.Holders, c.Name)
		}
	}
	if s.look != nil {
		state := s.look()
		for i, text := range state {
			if i < len(s.shown) && s.shown[i] == text {
				continue
			}
			if e.Server != "" {
				e.Server += ", "
			}
			e.Server += text
		}
		s.shown = state
	}
	s.audience.Event(e)
}

// quietly does what the audience does not see.
func (s *Stage) quietly(do func()) {
	set := func(quiet bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.quiet = quiet
	}
	set(true)
	do()
	set(false)
}

// Await waits until ok returns true; what says what for, in an error.
func (s *Stage) Await(what string, ok func() bool) {
	late := time.NewTimer(patience)
	defer late.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			failf("still waiting for %s after %v", what, patience)
		case <-s.ctx.Done():
			check("waiting for "+what, context.Cause(s.ctx))
		}
	}
}

// patience is how long the director waits for what should come soon, on a busy machine.
const patience = time.Minute

// start starts a client.
func (s *Stage) start(spec pattern.Spec) *Client {
	if !slices.Contains(s.scene.Clients, spec.Client) {
		failf("the scene has no client %s", spec.Client)
	}
	c, err := startClient(s, spec)
	check("start "+spec.Client, err)
	s.mu.Lock()
	s.clients = append(s.clients, c)
	s.mu.Unlock()
	c.finish()
	return c
}
