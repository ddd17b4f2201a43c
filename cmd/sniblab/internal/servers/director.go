package servers

import (
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/internal/history"
)

// A Director does faults to the clients of a store, one after the other, and records them.
type Director struct {
	Set    *Set                // nil if the store has no servers
	TTL    time.Duration       // of the locks
	Record func(history.Event) // records what happens now

	faults atomic.Int64 // so many have begun
}

// A Client is a client's process, to which faults happen.
type Client interface {
	Worker() string // its name in the history
	Stop()
	Resume()
	Restart() // kills it, and starts it again
}

// Do does a fault to a victim. k says when and for how long; it lacks what is done to the process.
func (d *Director) Do(f Fault, victim Client, k Strike) {
	var resume func()
	k.TTL = d.TTL
	k.stop = func() { resume = d.Stop(victim) }
	k.resume = func() { resume() }
	k.restart = func() {
		d.Begin(&history.Event{Fault: history.KillWorker, Worker: victim.Worker()})()
		victim.Restart()
	}
	at := k.At
	k.At = func(when Moment, fail func()) (granted bool) {
		return at(when, func() {
			e := &history.Event{Fault: f.Name}
			if f.isOfClient() {
				e.Worker = victim.Worker()
			}
			defer d.Begin(e)()
			fail()
		})
	}
	f.strike(d.Set, k)
}

// Stop stops a client, and returns a function that lets it go on.
func (d *Director) Stop(c Client) (resume func()) {
	end := d.Begin(&history.Event{Fault: history.StopWorker, Worker: c.Worker()})
	c.Stop()
	return func() {
		c.Resume()
		end()
	}
}

// Begin records the begin of a fault. It returns a function that records the end, with what has
// become known of the fault since.
func (d *Director) Begin(e *history.Event) (end func()) {
	e.Kind, e.ID = history.Begin, d.faults.Add(1)
	d.Record(*e)
	return func() {
		e.Kind = history.End
		d.Record(*e)
	}
}
