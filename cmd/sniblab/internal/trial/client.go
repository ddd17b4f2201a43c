package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// sampling is how often a holder is asked whether it still holds the lock.
const sampling = 20 * time.Millisecond

// briskWork is what holds of a brisk trial, and the pauses between them, are shorter than.
const briskWork = 5 * time.Millisecond

// A client competes for the lock through a target's process. All fields belong to its own
// goroutine, if they don't say otherwise.
type client struct {
	b      *trial
	number int
	name   string
	rng    *rand.Rand

	process  *target.Process
	worker   string // the name of the process in the history: A, A2, A3 …
	restarts int
	shared   *client // whose process it uses, or nil
	sharers  []*client
	ids      int64

	answers       chan answer       // from the process
	variants      chan variant      // from the director
	interruptions chan interruption // likewise; they are received while the client waits
}

// An interruption happens to a client that waits for the lock.
type interruption struct {
	do   func(*client) (waits bool) // waits reports whether it still waits
	done chan struct{}
}

// An answer is a message of a target, and when it came.
type answer struct {
	target.Message
	at int64
}

// a variant is what the director wants a client to do with its next acquisition. Functions may be
// nil.
type variant struct {
	before    func(c *client)           // is called before the request is sent
	asked     func(c *client)           // is called in a goroutine then, and may see to the answers
	acquiring func(c *client, id int64) // is in place of an acquisition; the request is sent already
	over      func(c *client)           // is called when the acquisition has its answer
	holding   func(c *client, id int64) // is in place of a hold's work, up to its release
	done      chan struct{}
}

// start starts the process of a client.
func (c *client) start(ctx context.Context) error {
	c.restarts++
	c.worker = c.name
	if c.restarts > 1 {
		c.worker = fmt.Sprintf("%s%d", c.name, c.restarts)
	}
	worker := c.worker
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
	c.process = p
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
	if c.process != nil {
		c.process.Kill()
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
	for _, other := range c.sharers {
		if m.ID>>32 == int64(other.number) {
			c = other
		}
	}
	c.answers <- answer{m, e.At}
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
		c.sleep(ctx, c.pause())
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

// cycle acquires the lock once, and does what the director wants with it.
func (c *client) cycle(ctx context.Context) {
	var a variant
	select {
	case a = <-c.variants:
		defer close(a.done)
	default:
	}
	c.ids++
	id := int64(c.number)<<32 | c.ids // unique among clients that share a process
	worker := c.owner().worker
	c.b.log(history.Event{Kind: history.Call, Worker: worker, ID: id, Name: lockName, Any: true})
	granted := c.acquire(ctx, id, a)
	if !granted {
		return
	}
	if a.holding != nil {
		a.holding(c, id)
		return
	}
	if c.stay(ctx, id, c.workTime()) {
		c.finish(ctx, id)
	}
	c.release(ctx, id)
}

// acquire asks for the lock, and reports whether the client got it.
func (c *client) acquire(ctx context.Context, id int64, a variant) bool {
	if a.before != nil {
		a.before(c)
	}
	if a.over != nil {
		defer a.over(c)
	}
	if a.asked != nil {
		began, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			close(began)
			a.asked(c)
		}()
		<-began
		defer func() { <-ended }()
	}
	process := c.owner().process
	process.Send(target.Message{Type: target.Acquire, ID: id, Wait: (3 * TTL).Milliseconds()})
	if a.acquiring != nil {
		a.acquiring(c, id)
		return false
	}
	for {
		select {
		case m := <-c.answers:
			if m.ID == id {
				return m.Type == target.Granted
			}
		case i := <-c.interruptions:
			waits := i.do(c)
			close(i.done)
			if !waits {
				return false
			}
		case <-process.Failed():
			c.b.stop(process.Err())
			return false
		case <-ctx.Done():
			return false
		}
	}
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

// answer waits for the answer to the last request about a hold. It reports whether there is one.
func (c *client) answer(ctx context.Context, id int64) (answer, bool) {
	process := c.owner().process
	for {
		select {
		case m := <-c.answers:
			if m.ID == id {
				return m, true
			}
		case <-process.Failed():
			c.b.stop(process.Err())
			return answer{}, false
		case <-ctx.Done():
			return answer{}, false
		}
	}
}

// ask asks whether the client still holds the lock, and records the answer. A client that says yes
// believed so at least until the question was sent: at the moment that ask returns.
func (c *client) ask(ctx context.Context, id int64) (sent int64, held bool) {
	sent = c.b.now()
	c.owner().process.Send(target.Message{Type: target.Check, ID: id})
	m, ok := c.answer(ctx, id)
	if !ok {
		return sent, false
	}
	e := history.Event{At: sent, Kind: history.Valid, Worker: c.owner().worker, ID: id}
	if !m.Held {
		e.At, e.Kind = m.at, history.Told
	}
	c.b.log(e)
	return sent, m.Held
}

// holds is ask without the moment.
func (c *client) holds(ctx context.Context, id int64) bool {
	_, held := c.ask(ctx, id)
	return held
}

// stay works for a time, and asks again and again. It returns false if the lock is lost.
func (c *client) stay(ctx context.Context, id int64, d time.Duration) bool {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return true
		}
		c.sleep(ctx, min(left, sampling))
		if ctx.Err() != nil || !c.holds(ctx, id) {
			return false
		}
	}
}

// finish writes what the work has made, if the client still holds the lock. The write counts from
// the last moment at which the client is known to have believed in the lock: what comes after that
// may be our own delay.
func (c *client) finish(ctx context.Context, id int64) {
	if sent, held := c.ask(ctx, id); held {
		c.write(id, sent)
	}
}

// write records a write that reaches the resource at a moment.
func (c *client) write(id, at int64) {
	c.b.log(history.Event{Kind: judge.Write, At: at, Worker: c.owner().worker, ID: id})
}

func (c *client) release(ctx context.Context, id int64) {
	worker := c.owner().worker
	c.b.log(history.Event{Kind: history.Release, Worker: worker, ID: id})
	c.owner().process.Send(target.Message{Type: target.Release, ID: id})
	for {
		m, ok := c.answer(ctx, id)
		if !ok || m.Type == target.Released || m.Type == target.Failed {
			return
		}
	}
}

func (c *client) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
