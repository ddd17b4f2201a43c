package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// sampling is how often a holder is asked whether it still holds the lock.
const sampling = 20 * time.Millisecond

// briskWork is what holds of a brisk trial, and the pauses between them, are shorter than.
const briskWork = 5 * time.Millisecond

// A client competes for the lock through a target's process.
type client struct {
	b      *trial
	number int
	name   string
	rng    *rand.Rand

	life     atomic.Pointer[life]
	restarts int
	shared   *client // whose process it uses, or nil
	ids      int64
	hold     atomic.Int64 // the ID of the latest hold; 0 if it has written

	answers chan answer // from the process
	visits  chan *visit // from the director
	waits   atomic.Bool // for the lock
}

// A life is one process of a client.
type life struct {
	*target.Process
	worker string        // its name in the history: A, A2, A3 …
	gone   chan struct{} // closed when it was killed
	kill   func()
}

func newLife(p *target.Process, worker string) *life {
	l := &life{Process: p, worker: worker, gone: make(chan struct{})}
	l.kill = sync.OnceFunc(func() { p.Kill(); close(l.gone) })
	return l
}

// An answer is a message of a target, and when it came.
type answer struct {
	target.Message
	at int64
}

// start starts the process of a client.
func (c *client) start(ctx context.Context) error {
	c.restarts++
	worker := c.name
	if c.restarts > 1 {
		worker = fmt.Sprintf("%s%d", c.name, c.restarts)
	}
	var env []string
	if clock := c.b.store.clientClocks[c.number]; clock != nil {
		env = clock.Env()
	}
	p, err := target.Start(ctx, c.b.c.Command, env, target.Message{
		URL: c.b.store.url(c.number), Name: c.b.store.lockName(), TTL: TTL.Milliseconds(), Client: worker,
	}, func(m target.Message) { c.receive(worker, m) })
	if err != nil {
		return err
	}
	c.life.Store(newLife(p, worker))
	c.b.log(history.Event{Kind: history.Start, Worker: worker})
	return nil
}

// owner returns the client whose process this one uses.
func (c *client) owner() *client {
	if c.shared != nil {
		return c.shared
	}
	return c
}

// ways returns the client's ways to the servers, if the lab is on them.
func (c *client) ways() []*livetest.Proxy { return c.b.store.ways[c.number] }

// kill ends the process.
func (c *client) kill() {
	if l := c.life.Load(); l != nil {
		l.kill()
	}
}

// receive records a message. It is called by the goroutine that reads messages of the process.
func (c *client) receive(worker string, m target.Message) {
	e := history.Event{At: c.b.now(), Worker: worker, ID: m.ID, Name: lockName, Token: m.Token}
	switch m.Type {
	case target.Granted:
		if c.b.c.Tokens && m.Token == 0 {
			c.b.failf("%s is said to have tokens, and has granted a lock without one", c.b.c.Name)
		}
		e.Kind = history.Acquired
		c.b.log(e)
		e.Kind = judge.Read
		c.b.log(e)
	case target.Denied, target.Failed:
		e.Kind, e.Err = history.Failed, m.Error
		c.b.log(e)
	case target.Lost:
		e.Kind = history.Told
		c.b.log(e)
		return
	}
	c.b.clients[m.ID>>32].answers <- answer{m, e.At} // it may share the process
}

// run acquires and releases the lock until the trial is over.
func (c *client) run(ctx context.Context) {
	for {
		select {
		case <-c.b.over:
			return
		case <-ctx.Done():
			return
		default:
		}
		c.cycle(ctx)
		c.b.wait(ctx, c.pause())
	}
}

// pause returns for how long not to want the lock after a hold.
func (c *client) pause() time.Duration {
	longest := 20 * time.Millisecond
	if c.b.brisk.Load() {
		longest = briskWork
	}
	return c.upTo(longest)
}

func (c *client) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

// A cycle is one acquisition, and the hold that it may lead to.
type cycle struct {
	*client
	*life
	ctx   context.Context
	id    int64  // of the hold
	visit *visit // of [servers.Anytime] if no fault waits for the client
}

// cycle acquires the lock once, and lets a fault happen.
func (c *client) cycle(ctx context.Context) {
	c.ids++
	y := &cycle{client: c, life: c.owner().life.Load(), ctx: ctx, id: int64(c.number)<<32 | c.ids} // unique among clients that share a process
	select {
	case y.visit = <-c.visits:
	default:
		y.visit = newVisit(servers.Anytime)
	}
	defer y.endVisit()
	if y.isGone() { // it is about to start again
		return
	}
	c.b.log(history.Event{Kind: history.Call, Worker: y.worker, ID: y.id, Name: lockName, Any: true})
	y.meet(servers.Acquiring)
	granted := y.acquire()
	y.pass(servers.Acquiring)
	if !granted || y.isGone() {
		return
	}
	y.visit.granted = true
	y.hold.Store(y.id)
	y.meet(servers.Holding)
	if y.work() {
		y.finish()
	}
	y.meet(servers.Releasing)
	y.release()
	y.pass(servers.Releasing)
}

// meet lets a fault begin that waits for this moment.
func (y *cycle) meet(when servers.Moment) {
	if y.visit.when != when {
		return
	}
	close(y.visit.met)
	select {
	case <-y.visit.goOn:
	case <-y.ctx.Done():
	}
}

// pass lets a fault end that waited for this moment.
func (y *cycle) pass(when servers.Moment) {
	if y.visit.when != when {
		return
	}
	close(y.visit.passed)
	y.awaitOver()
}

// awaitOver waits for the end of the fault.
func (y *cycle) awaitOver() {
	select {
	case <-y.visit.over:
	case <-y.ctx.Done():
	}
}

// endVisit ends a visit together with the cycle.
func (y *cycle) endVisit() {
	select {
	case <-y.visit.met:
		y.awaitOver() // it may just start the client's process again
	default:
	}
	close(y.visit.done)
}

// isGone reports whether the process was killed.
func (y *cycle) isGone() bool {
	select {
	case <-y.gone:
		return true
	default:
		return false
	}
}

// acquire asks for the lock, and reports whether the client got it.
func (y *cycle) acquire() bool {
	y.Send(target.Message{Type: target.Acquire, ID: y.id, Wait: (3 * TTL).Milliseconds()})
	y.waits.Store(true)
	defer y.waits.Store(false)
	m, ok := y.answer()
	return ok && m.Type == target.Granted
}

// work works under the lock, and reports whether the client held it all the time. After a fault, it
// works on for half a TTL: what went wrong shows only then.
func (y *cycle) work() bool {
	switch y.visit.when {
	case servers.Anytime:
		return y.stay(y.workTime(), nil)
	case servers.Releasing:
		return true
	case servers.Holding:
		return y.stay(time.Hour, y.visit.over) && y.stay(TTL/2, nil)
	}
	return y.stay(TTL/2, nil)
}

// workTime returns for how long to hold the lock.
func (c *client) workTime() time.Duration {
	switch {
	case c.b.c.Work > 0:
		return c.b.c.Work
	case c.b.brisk.Load():
		return c.upTo(briskWork)
	case c.rng.IntN(3) == 0:
		return 100*time.Millisecond + c.upTo(200*time.Millisecond)
	default:
		return 5*time.Millisecond + c.upTo(25*time.Millisecond)
	}
}

// answer waits for the answer to the last request, and reports whether there is one.
func (y *cycle) answer() (answer, bool) {
	for {
		select {
		case m := <-y.answers:
			if m.ID == y.id {
				return m, true
			}
		case <-y.gone:
			return answer{}, false
		case <-y.Failed():
			y.b.stop(y.Err())
			return answer{}, false
		case <-y.ctx.Done():
			return answer{}, false
		}
	}
}

// ask asks whether the client still holds the lock, and records the answer. A client that says yes
// believed so at least until the question was sent: at the moment that ask returns.
func (y *cycle) ask() (sent int64, held bool) {
	sent = y.b.now()
	y.Send(target.Message{Type: target.Check, ID: y.id})
	m, ok := y.answer()
	if !ok {
		return sent, false
	}
	e := history.Event{At: sent, Kind: history.Valid, Worker: y.worker, ID: y.id}
	if !m.Held {
		e.At, e.Kind = m.at, history.Told
	}
	y.b.log(e)
	return sent, m.Held
}

// stay works for a time, or until a channel is closed, and asks again and again. It returns false
// if the lock is lost.
func (y *cycle) stay(d time.Duration, until <-chan struct{}) bool {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		select {
		case <-until:
			return true
		default:
		}
		if left <= 0 {
			return true
		}
		awaitOr(y.ctx, until, min(left, sampling))
		if _, held := y.ask(); !held {
			return false
		}
	}
}

// finish writes what the work has made, if the client still holds the lock. The write counts from
// the last moment at which the client is known to have believed in the lock: what comes after that
// may be our own delay.
func (y *cycle) finish() {
	if sent, held := y.ask(); held {
		y.write(y.worker, sent)
	}
}

// write records that the write of the latest hold reaches the resource at a moment, unless it has
// reached it before.
func (c *client) write(worker string, at int64) {
	if id := c.hold.Swap(0); id != 0 {
		c.b.log(history.Event{Kind: judge.Write, At: at, Worker: worker, ID: id})
	}
}

func (y *cycle) release() {
	if y.isGone() {
		return
	}
	y.b.log(history.Event{Kind: history.Release, Worker: y.worker, ID: y.id})
	y.Send(target.Message{Type: target.Release, ID: y.id})
	for {
		m, ok := y.answer()
		if !ok || m.Type == target.Released || m.Type == target.Failed {
			return
		}
	}
}
