package cli

import (
	"context"
	"errors"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/child"
)

// A guard watches over a command that runs under a lock: it ends the command before the lock can be somebody else's,
// and passes on what signals and the terminal tell us.
type guard struct {
	run  *run
	lock *snib.Lock
	kid  *child.Child

	margin time.Duration // validity below which the command is asked to end
	lead   time.Duration // validity below which it is killed

	latest time.Time        // when --max-hold is over, if it was given
	look   *time.Timer      // when to look at the validity again
	limit  <-chan time.Time // --timeout is over
	kill   *time.Timer      // a command that was asked to end has had its time; nil before
	killAt time.Time
	front  <-chan time.Time // to see whether the terminal has become ours; nil unless the command wants it

	why      int            // the exit code for which we end the command; 0 as long as we don't
	lost     bool           // the hold is over
	stopped  syscall.Signal // what stopped the command; 0 while it runs
	wantsTTY bool           // it has the terminal, or asked for it
	told     bool           // we were sent SIGINT
	asked    bool           // we passed on a signal that ends programs: what winds down for it is guarded still
}

func (r *run) guard(lock *snib.Lock, kid *child.Child) *guard {
	g := &guard{run: r, lock: lock, kid: kid, wantsTTY: kid.Lent()}
	// A healthy hold is valid for two thirds of its TTL at least, because that is when it is renewed. The last third is
	// divided between trying again and ending the command.
	ttl := min(r.ttl.value, lock.Validity()) // in a session, the store says how long leases are
	g.margin = min(r.killAfter.value, ttl/3)
	if r.maxHold.set {
		g.margin = min(g.margin, r.maxHold.value/3)
		g.latest = time.Now().Add(r.maxHold.value)
	}
	g.lead = min(20*time.Millisecond, ttl/50)
	if r.timeout.set {
		g.limit = time.After(r.timeout.value)
	}
	g.look = time.NewTimer(0)
	catch(r.sigs, syscall.SIGTSTP) // not before: while we wait it stops us as anybody else
	return g
}

// watch returns when the command has ended.
func (g *guard) watch() ending {
	defer g.look.Stop()
	lost := g.lock.Lost()
	for {
		var kill <-chan time.Time
		if g.kill != nil {
			kill = g.kill.C
		}
		select {
		case e := <-g.kid.Events():
			if end, over := g.changed(e); over {
				return g.finish(end)
			}
		case <-lost:
			lost = nil
			g.judge()
		case <-g.look.C:
			g.judge()
		case s := <-g.run.sigs:
			g.signalled(s.(syscall.Signal))
		case <-g.limit:
			g.run.tell("%s took longer than its --timeout of %v: ended", printable(g.run.argv[0]), g.run.timeout)
			g.end(exitTimeout, g.run.killAfter.value)
		case <-kill:
			g.kid.Signal(syscall.SIGKILL)
		case <-g.front:
			g.front = nil
			g.handle(g.stopped)
		}
	}
}

// judge looks at how long the hold is still good, and acts on it.
func (g *guard) judge() {
	left := g.lock.Validity()
	next := left - max(g.margin, g.lead)
	switch {
	case g.lost:
		return
	case left <= g.lead:
		g.over()
		return
	case left <= g.margin:
		if g.run.onLost.value == "kill" {
			g.fading(left)
		}
		next = left - g.lead
	}
	g.look.Reset(max(next, time.Millisecond))
}

// fading ends the command in the time that is left, because nothing says that there will be more.
func (g *guard) fading(left time.Duration) {
	if g.why == 0 {
		why := noAnswer
		if err := g.run.renewals.trouble(); err != nil {
			why = "its lease can't be renewed: " + message(err)
		} else if g.run.maxHold.set && time.Until(g.latest) < left+g.margin {
			why = "its --max-hold is nearly over"
		}
		g.run.say("about to lose %s: %s; ending the command", printable(g.run.name), why)
	}
	g.end(exitLost, left-g.lead)
}

// over is the loss. Somebody else may have the lock by now, so the command gets no time.
func (g *guard) over() {
	g.lost = true
	if g.run.onLost.value == "continue" {
		g.run.say("lost %s: %s; the command goes on without it, as --on-lost says", printable(g.run.name), g.cause())
		return
	}
	g.why = exitLost
	g.kid.Signal(syscall.SIGKILL)
	g.run.say("lost %s: %s; killed the command", printable(g.run.name), g.cause())
}

// cause says why the hold is over, as far as that is known already.
func (g *guard) cause() string {
	cause := context.Cause(g.lock.Context())
	if cause == nil {
		cause = g.run.renewals.trouble()
	}
	if cause == nil {
		return "its lease was not renewed in time"
	}
	return message(cause)
}

// end asks the command to end, and has it killed after grace. The first reason counts, and the earliest end.
func (g *guard) end(why int, grace time.Duration) {
	first := g.why == 0
	if first || why == exitLost {
		g.why = why
	}
	g.killIn(grace)
	if first && grace > 0 {
		g.kid.Signal(syscall.SIGTERM)
		g.resume()
	}
}

// killIn has the command killed after grace, unless it is to be killed before that.
func (g *guard) killIn(grace time.Duration) {
	at := time.Now().Add(grace)
	switch {
	case g.kill == nil:
		g.kill = time.NewTimer(grace)
	case at.Before(g.killAt):
		g.kill.Reset(grace)
	default:
		return
	}
	g.killAt = at
}

// signalled passes on a signal that was sent to us.
func (g *guard) signalled(s syscall.Signal) {
	g.judge() // we may have been stopped for longer than the lease lasted: then the command must not go on
	if g.lost && g.why != 0 {
		return
	}
	switch {
	case s == syscall.SIGPIPE:
	case s == syscall.SIGTSTP && g.stopped != 0:
		g.run.tell("%s goes on", printable(g.run.argv[0]))
		g.resume()
	case s == syscall.SIGCONT:
		g.resume()
	default:
		g.told = g.told || s == syscall.SIGINT
		g.kid.Signal(s)
		if !ends(s) {
			return
		}
		if !g.asked { // later signals leave the time as it is
			g.asked = true
			g.killIn(g.run.killAfter.value)
		}
		if g.stopped != 0 {
			g.resume() // a stopped process would not get it
		}
	}
}

// resume lets the command go on if it was stopped, with the terminal if it had that.
func (g *guard) resume() {
	g.kid.Continue(g.wantsTTY)
	g.stopped, g.front = 0, nil
}

// changed takes note of a change of the command's state, and reports whether it has ended and how.
func (g *guard) changed(e child.Event) (end ending, over bool) {
	switch {
	case e.Err != nil:
		g.run.say("the command can't be waited for: %v", e.Err)
		g.kid.Signal(syscall.SIGKILL)
		return ending{code: exitBug}, true
	case e.Status.Exited():
		return ending{code: e.Status.ExitStatus()}, true
	case e.Status.Signaled():
		s := e.Status.Signal()
		byKey := s == syscall.SIGINT && g.kid.OnTerminal()
		return ending{code: exitSignal + int(s), die: byKey, group: byKey && g.kid.Lent() && !g.told}, true
	case e.Status.Stopped():
		g.handle(e.Status.StopSignal())
	case e.Status.Continued():
		g.stopped, g.front = 0, nil
	}
	return ending{}, false
}

// handle deals with a command that was stopped.
func (g *guard) handle(by syscall.Signal) {
	g.judge() // see signalled
	if g.lost && g.why != 0 {
		return // it is being killed
	}
	again := g.stopped == by
	g.stopped = by
	if by == syscall.SIGTTIN || by == syscall.SIGTTOU {
		g.wantsTTY = true
		if g.kid.Lend() {
			g.resume()
			return
		}
		// We are in the background. That we come to the front is told by SIGCONT only if we were stopped ourselves.
		g.front = time.After(patience / 2)
	}
	g.kid.TakeBack()
	if again {
		return
	}
	if g.kid.OnTerminal() && by == syscall.SIGTSTP {
		g.run.tell("stopped, and still holding %s: Ctrl-Z goes on, Ctrl-C ends it", printable(g.run.name))
		return
	}
	g.run.tell("the command was stopped (%v), and still holds %s", by, printable(g.run.name))
}

// finish is called when the command itself has ended: it sees to what the command has left, and finds the exit code.
func (g *guard) finish(end ending) ending {
	if g.why != 0 || g.asked {
		g.sweep()
	}
	g.kid.TakeBack()
	if g.lock.Validity() <= 0 && !g.lost {
		g.lost = true
		g.run.say("lost %s: %s; the command ended by itself just now", printable(g.run.name), g.cause())
	}
	switch {
	case g.lost:
		return ending{code: exitLost}
	case g.why != 0:
		return ending{code: g.why}
	}
	return end
}

// sweep sees to it that of a command that we ended nothing is left, so that nothing of it runs beside the next holder.
func (g *guard) sweep() {
	for g.kid.Alive() && time.Now().Before(g.killAt) && g.lock.Validity() > g.lead {
		g.kid.Vanish(10 * time.Millisecond)
	}
	g.kid.Signal(syscall.SIGKILL)
	if !g.kid.Vanish(g.run.killAfter.value + time.Second) {
		g.run.say("warning: the system can't kill all that %s started", printable(g.run.argv[0]))
	}
}

// An ending is how this process ends.
type ending struct {
	code  int
	die   bool // of SIGINT, which was typed: shells then stop the script or loop around us, which an exit code can't
	group bool // the keyboard's SIGINT went to the command only: pass it on to those who share our process group
}

// raise ends this process by SIGINT if that is how it is to end. Where that isn't possible it returns.
func (e ending) raise() {
	if !e.die {
		return
	}
	target := syscall.Getpid()
	if e.group {
		target = 0
	}
	signal.Reset(syscall.SIGINT)
	if syscall.Kill(target, syscall.SIGINT) == nil {
		time.Sleep(time.Second) // the signal is on its way, and may reach any thread
	}
}

// renewals remembers what became of the last renewal.
type renewals struct{ last atomic.Pointer[error] }

func (r *renewals) trace(a *app) *snib.Trace {
	return &snib.Trace{Renewed: func(e snib.Event) {
		r.last.Store(&e.Err)
		if e.Err != nil && !errors.Is(e.Err, snib.ErrLost) {
			a.note("%s was not renewed, %s left: %s", printable(e.Name), short(e.Left), message(e.Err))
		}
	}}
}

// trouble is the error of the last renewal, or nil.
func (r *renewals) trouble() error {
	if err := r.last.Load(); err != nil {
		return *err
	}
	return nil
}
