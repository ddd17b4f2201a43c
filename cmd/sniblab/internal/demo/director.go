package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/cmd/sniblab/internal/timeline"
)

// A run is what the variants of a demo share.
type run struct {
	demo     Demo
	t        testing.TB
	observer Observer
	redis    *redisServer // nil before the first use
}

// A Director is where a variant is run.
type Director struct {
	*run
	ctx   context.Context
	began time.Time

	clients []*Client

	mu     sync.Mutex
	shown  []string // what the server's lane showed last
	damage Damage
	sold   int
}

// A failure is what methods of a director panic with. It ends the variant.
type failure struct{ error }

// failf ends the variant.
func failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// check ends the variant if err is not nil.
func check(what string, err error) {
	if err != nil {
		failf("%s: %w", what, err)
	}
}

// run runs a variant.
func (r *run) run(ctx context.Context, variant Variant) error {
	s := &Director{run: r, ctx: ctx}
	r.observer.Begin(variant)
	s.began = time.Now()
	err := s.variant(variant)
	if err != nil {
		if s.isTooBusy() {
			err = ErrTooBusy
		}
		return err
	}
	result := Result{Damage: s.damage, Stock: s.redis.stock(), Sold: s.sold}
	result.Damage.Lost = s.sold - (OpeningStock - result.Stock)
	switch {
	case result.Damage == variant.want:
	case s.isTooBusy():
		return ErrTooBusy
	default:
		return fmt.Errorf("the damage is: %v; it should be: %v", result.Damage, variant.want)
	}
	r.observer.End(variant, result)
	return nil
}

// variant runs a variant up to its end, or its failure. When it returns, the clients have ended,
// and nothing happens any more.
func (s *Director) variant(variant Variant) (err error) {
	defer func() {
		for _, c := range s.clients {
			c.process.Kill()
		}
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p) // the failure of a server is one of livetest.Outside
		}
	}()
	variant.run(s)
	return nil
}

// count counts something that went wrong, or a sale.
func (s *Director) count(what *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what++
}

// isTooBusy reports whether a client lost its lease although the demo did not make it lose it.
func (s *Director) isTooBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.clients, func(c *Client) bool { return c.lost && !c.mayLose })
}

// Say shows a line in a lane.
func (s *Director) Say(lane, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(lane, format, args...)
}

// say shows a line in a lane, and what has changed on the server. The caller holds s.mu.
func (s *Director) say(lane, format string, args ...any) {
	e := timeline.Event{At: time.Since(s.began), Lane: lane, Text: fmt.Sprintf(format, args...)}
	for _, c := range s.clients {
		if c.holds() {
			e.Holders = append(e.Holders, c.Name)
		}
	}
	state := s.redis.look()
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
	s.observer.Event(e)
}

// Await waits until ok returns true; what says what for, in an error.
func (s *Director) Await(what string, ok func() bool) {
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
func (s *Director) start(spec pattern.Spec) *Client {
	if !slices.Contains(s.demo.Clients, spec.Client) {
		failf("the demo has no client %s", spec.Client)
	}
	c, err := startClient(s, spec)
	check("start "+spec.Client, err)
	s.mu.Lock()
	s.clients = append(s.clients, c)
	s.mu.Unlock()
	c.Finish() // connecting
	return c
}
