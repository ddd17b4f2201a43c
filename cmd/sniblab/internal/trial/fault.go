package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/internal/livetest"
)

// Faults returns those of the table that trials can have.
func Faults() []servers.Fault {
	return slices.DeleteFunc(servers.Faults(), func(f servers.Fault) bool { return f.Needs == servers.Nemesis })
}

// fits reports whether a target can have a fault.
func fits(f servers.Fault, c Target) bool {
	has := slices.Contains(c.Store.of().has, f.Needs)
	switch f.Needs {
	case servers.Nothing:
		return true
	case servers.OwnProcess:
		return !c.Together
	case servers.AClientClock:
		return c.LibcClock && servers.HasCompiler()
	case servers.AClock, servers.ADisk:
		return has && servers.HasCompiler()
	case servers.AnOwnWay:
		return has && (!c.OneWay || f.Name == "delay" || f.Name == "stall")
	}
	return has
}

// FaultsFor returns the faults with these names that a target can have, or an error if there are
// none; nil means all.
func FaultsFor(c Target, only []string) ([]servers.Fault, error) {
	if c.Faults != nil {
		only = c.Faults
	}
	chosen := slices.DeleteFunc(Faults(), func(f servers.Fault) bool {
		return only != nil && !slices.Contains(only, f.Name) || !fits(f, c)
	})
	if len(chosen) == 0 && c.Work == 0 {
		return nil, fmt.Errorf("%s on the store %s can't have the faults %s: sniblab list says what they need", c.Name, c.Store, strings.Join(only, ", "))
	}
	return chosen, nil
}

// A visit is a fault that waits for a client at a moment of its next acquisition.
type visit struct {
	when    servers.Moment
	proceed func() // lets the client go on

	met    chan struct{} // closed when the client is at the moment, where it waits
	goOn   chan struct{} // closed by proceed
	passed chan struct{} // closed when what it was about to do is done
	over   chan struct{} // closed when the fault has ended
	done   chan struct{} // closed when the client has done with the lock, or did not get it

	granted bool // it got the lock; set before done is closed
}

func newVisit(when servers.Moment) *visit {
	v := &visit{when: when}
	for _, ch := range []*chan struct{}{&v.met, &v.goOn, &v.passed, &v.over, &v.done} {
		*ch = make(chan struct{})
	}
	v.proceed = sync.OnceFunc(func() { close(v.goOn) })
	return v
}

// A strike is a fault that the director does to a client.
type strike struct {
	ctx    context.Context
	b      *trial
	victim *client
	lasts  time.Duration
	visit  *visit // the latest, or nil
	met    bool   // the client was at its moment
}

// strike does a fault to a client.
func (b *trial) strike(ctx context.Context, f servers.Fault, victim *client, rng *rand.Rand) {
	s := &strike{ctx: ctx, b: b, victim: victim, lasts: f.Duration(rng, TTL)}
	b.director.Do(f, s, servers.Strike{
		Rand: rng, For: s.lasts, Step: time.Duration((2 + 2*rng.Float64()) * float64(TTL)),
		Ways: victim.ways(), All: b.store.allWays(), At: s.at, Wait: s.wait, Proceed: s.proceed,
		StepClock: func(by time.Duration) { b.store.clientClocks[victim.owner().number].StepClock(by) },
		Write: func() {
			if s.met {
				victim.write(s.Worker(), b.now())
			}
		},
	})
	b.store.reviveAny()
	if b.store.Set != nil && b.store.Settle != nil {
		b.store.Settle()
	}
	if f.Needs == servers.ADisk {
		b.await(ctx, livetest.Patience, func() bool {
			b.store.reviveAny() // PostgreSQL may first fail to recover from what it could not write, and then end
			return b.store.Hit(nil).Ready() == nil
		})
	}
}

// at calls fail at a moment. See [servers.Strike].
func (s *strike) at(when servers.Moment, fail func()) (granted bool) {
	switch when {
	case servers.Anytime:
		fail()
		return false
	case servers.Waiting:
		return s.meet(s.b.clients[(s.victim.number+1)%len(names)], servers.Holding, func() {
			s.proceed()
			if s.b.await(s.ctx, TTL, s.victim.waits.Load); s.victim.waits.Load() {
				fail()
			}
		})
	}
	return s.meet(s.victim, when, fail)
}

// meet calls fail while a client is at a moment. A client that does not get the lock can't be met
// when it holds it: then fail is called nonetheless.
func (s *strike) meet(c *client, when servers.Moment, fail func()) (granted bool) {
	v := newVisit(when)
	s.visit, s.met = v, s.await(c, v)
	if s.met || when == servers.Holding {
		fail()
	}
	close(v.over)
	v.proceed()
	awaitOr(s.ctx, v.done, 4*TTL)
	select {
	case <-v.done:
		return v.granted
	default:
		return false
	}
}

// await waits until a client is at the moment of a visit, and reports whether it is. If the client
// does not come to it, because it does not get the lock, await gives up.
func (s *strike) await(c *client, v *visit) bool {
	select {
	case c.visits <- v:
	case <-s.ctx.Done(): // the client has ended, and may have left a visit there
		return false
	}
	for range 2 {
		select {
		case <-v.met:
			return true
		case <-v.done:
			return false
		case <-s.ctx.Done():
			return false
		case <-time.After(4 * TTL):
		}
		select {
		case <-c.visits: // it has not taken it
			close(v.done)
			return false
		default:
		}
	}
	return false
}

// proceed lets the client go on that was met.
func (s *strike) proceed() {
	if s.visit != nil {
		s.visit.proceed()
	}
}

// wait waits for as long as the fault lasts.
func (s *strike) wait() {
	s.proceed()
	if s.visit != nil && (s.visit.when == servers.Acquiring || s.visit.when == servers.Releasing) {
		awaitOr(s.ctx, s.visit.passed, 8*TTL)
		return
	}
	s.b.wait(s.ctx, s.lasts)
}

// wait waits for a time.
func (b *trial) wait(ctx context.Context, d time.Duration) { awaitOr(ctx, nil, d) }

// awaitOr waits for ch, or for a time.
func awaitOr(ctx context.Context, ch <-chan struct{}, d time.Duration) {
	select {
	case <-ch:
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// reviveAny restarts the server that the next fault would hit if it has ended by itself, as MariaDB
// may when its clock goes back, also long after that, and PostgreSQL when its disk is full. Only
// servers with a shim may do that.
func (s *store) reviveAny() {
	if s.Set == nil || s.Shim == nil {
		return
	}
	of := s.Hit(rand.New(rand.NewPCG(0, 0)))
	if !of.Up() {
		of.Restart()
	}
	of.MayEnd()
}

// Worker implements [servers.Client].
func (s *strike) Worker() string { return s.victim.owner().life.Load().worker }

// Stop implements [servers.Client].
func (s *strike) Stop() {
	if err := s.victim.owner().life.Load().Stop(); err != nil {
		s.b.failf("stop %s: %w", s.victim.name, err)
	}
}

// Resume implements [servers.Client].
func (s *strike) Resume() {
	if err := s.victim.owner().life.Load().Resume(); err != nil {
		s.b.failf("resume %s: %w", s.victim.name, err)
	}
}

// Restart implements [servers.Client]. It kills the process as a crash would.
func (s *strike) Restart() {
	c := s.victim.owner()
	c.kill()
	for _, way := range c.ways() {
		way.Heal()
	}
	if err := c.start(s.ctx); err != nil && s.ctx.Err() == nil {
		s.b.stop(err)
	}
}
