package cli

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/child"
)

// A supervisor watches over a command that runs under a lock. It ends the command before the lock
// can belong to somebody else, and forwards signals and terminal events to it.
type supervisor struct {
	run   *runCommand
	held  holds
	child *child.Child

	termThreshold time.Duration // validity below which the command is asked to end
	killThreshold time.Duration // validity below which the command is killed

	validityTimer *time.Timer      // when to check the validity again
	timeoutC      <-chan time.Time // fires when --timeout is over
	killTimer     *time.Timer      // kills the command; nil until it was asked to end
	killAt        time.Time
	// Fires when to check whether the terminal has become ours; nil unless the command wants it.
	foregroundC <-chan time.Time

	// The exit code with which the supervisor ends the command; 0 while it does not.
	endCode    int
	lost       bool           // the hold has ended
	stopSignal syscall.Signal // the signal that stopped the command; 0 while it runs
	wantsTTY   bool           // the command has the terminal, or asked for it
	gotSIGINT  bool           // this process received SIGINT
	// A termination signal was forwarded. The supervisor goes on while the command winds down.
	termForwarded bool
}

func (r *runCommand) newSupervisor(held holds, kid *child.Child) *supervisor {
	g := &supervisor{run: r, held: held, child: kid, wantsTTY: kid.Lent()}
	// A healthy hold stays valid for at least two thirds of its TTL, because it is renewed by
	// then. The last third is divided between retries of the renewal and the end of the command.
	ttl := min(r.ttl.value, held.validity()) // in a session, the store sets the TTL
	g.termThreshold = min(r.killAfter.value, ttl/3)
	if r.maxHold.set {
		g.termThreshold = min(g.termThreshold, r.maxHold.value/3)
	}
	g.killThreshold = min(20*time.Millisecond, ttl/50)
	if r.timeout.set {
		g.timeoutC = time.After(r.timeout.value)
	}
	g.validityTimer = time.NewTimer(0)
	return g
}

// supervise returns when the command has ended.
func (g *supervisor) supervise() exitStatus {
	defer g.validityTimer.Stop()
	lost := g.held.lost()
	for {
		var kill <-chan time.Time
		if g.killTimer != nil {
			kill = g.killTimer.C
		}
		select {
		case e := <-g.child.Events():
			if end, over := g.handleEvent(e); over {
				return g.finish(end)
			}
		case <-lost:
			lost = nil
			g.checkValidity()
		case <-g.validityTimer.C:
			g.checkValidity()
		case s := <-g.run.sigs:
			g.forwardSignal(s.(syscall.Signal))
		case <-g.timeoutC:
			g.run.infof("%s took longer than its --timeout of %v: ended", printable(g.run.argv[0]), g.run.timeout)
			g.endCommand(exitTimeout, g.run.killAfter.value)
		case <-kill:
			g.child.Signal(syscall.SIGKILL)
		case <-g.foregroundC:
			g.foregroundC = nil
			g.handleStop(g.stopSignal)
		}
	}
}

// checkValidity checks how long the hold is still valid. If that is too short it ends the command.
func (g *supervisor) checkValidity() {
	left := g.held.validity()
	next := left - max(g.termThreshold, g.killThreshold)
	switch {
	case g.lost:
		return
	case left <= g.killThreshold:
		g.handleLoss()
		return
	case left <= g.termThreshold:
		g.endBeforeExpiry(left)
		next = left - g.killThreshold
	}
	g.validityTimer.Reset(max(next, time.Millisecond))
}

// endBeforeExpiry ends the command within left, because nothing shows that the hold will last
// longer.
func (g *supervisor) endBeforeExpiry(left time.Duration) {
	if g.endCode == 0 {
		reason := noAnswer
		if err := g.run.renewals.lastError(); err != nil {
			reason = "its lease can't be renewed: " + message(err)
		} else if g.run.maxHold.set && time.Until(g.run.maxHoldEnd) < left+g.termThreshold {
			reason = "its --max-hold is nearly over"
		}
		g.run.messagef("about to lose %s: %s; ending the command", g.held, reason)
	}
	g.endCommand(exitLost, left-g.killThreshold)
}

// handleLoss handles the loss of the hold. Somebody else may hold the lock by now, so the
// command gets no time to end.
func (g *supervisor) handleLoss() {
	g.lost = true
	g.endCode = exitLost
	g.child.Signal(syscall.SIGKILL)
	g.run.messagef("lost %s: %s; killed the command", g.held, g.run.lossCause(g.held))
}

// lossCause returns why one of the holds ended, as far as that is known.
func (r *runCommand) lossCause(held holds) string {
	cause := held.cause()
	if cause == nil {
		cause = r.renewals.lastError()
	}
	if cause == nil {
		return "its lease was not renewed in time"
	}
	return message(cause)
}

// endCommand asks the command to end, and kills it after grace. If endCommand is called again, the
// first exit code stays, unless the new one is exitLost, and so does the earliest time of the kill.
func (g *supervisor) endCommand(code int, grace time.Duration) {
	first := g.endCode == 0
	if first || code == exitLost {
		g.endCode = code
	}
	g.killIn(grace)
	if first && grace > 0 {
		g.child.Signal(syscall.SIGTERM)
		g.resume()
	}
}

// killIn schedules the kill of the command after grace, unless it is scheduled for an earlier
// time.
func (g *supervisor) killIn(grace time.Duration) {
	at := time.Now().Add(grace)
	switch {
	case g.killTimer == nil:
		g.killTimer = time.NewTimer(grace)
	case at.Before(g.killAt):
		g.killTimer.Reset(grace)
	default:
		return
	}
	g.killAt = at
}

// forwardSignal forwards a signal that this process received.
func (g *supervisor) forwardSignal(s syscall.Signal) {
	// This process may have been stopped for longer than the lease lasted. Then
	// the command must not go on.
	g.checkValidity()
	if g.lost {
		return
	}
	switch {
	case s == syscall.SIGPIPE:
	case isStop(s) && g.stopSignal != 0:
		g.run.infof("%s goes on", printable(g.run.argv[0]))
		g.resume()
	case isContinue(s):
		g.resume()
	default:
		g.gotSIGINT = g.gotSIGINT || s == syscall.SIGINT
		g.child.Signal(s)
		if !isTermination(s) {
			return
		}
		if !g.termForwarded { // later signals don't change the time of the kill
			g.termForwarded = true
			g.killIn(g.run.killAfter.value)
		}
		if g.stopSignal != 0 {
			g.resume() // a stopped process would not receive it
		}
	}
}

// resume continues a stopped command, with the terminal if the command had it.
func (g *supervisor) resume() {
	g.child.Continue(g.wantsTTY)
	g.stopSignal, g.foregroundC = 0, nil
}

// handleEvent handles a change of the command's state. over reports whether the command has
// ended.
func (g *supervisor) handleEvent(e child.Event) (end exitStatus, over bool) {
	switch {
	case e.Err != nil:
		g.run.messagef("the command can't be waited for: %v", e.Err)
		g.child.Signal(syscall.SIGKILL)
		return exitStatus{code: exitBug}, true
	case e.Status.Exited():
		return exitStatus{code: e.Status.ExitStatus()}, true
	case e.Status.Signaled():
		s := e.Status.Signal()
		byKey := s == syscall.SIGINT && g.child.OnTerminal()
		return exitStatus{code: exitSignal + int(s), bySIGINT: byKey, toGroup: byKey && g.child.Lent() && !g.gotSIGINT}, true
	case e.Status.Stopped():
		g.handleStop(e.Status.StopSignal())
	case e.Status.Continued():
		g.stopSignal, g.foregroundC = 0, nil
	}
	return exitStatus{}, false
}

// handleStop handles a command that a signal stopped.
func (g *supervisor) handleStop(by syscall.Signal) {
	g.checkValidity() // see forwardSignal
	if g.lost {
		return // it is being killed
	}
	again := g.stopSignal == by
	g.stopSignal = by
	if wantsTerminal(by) {
		g.wantsTTY = true
		if g.child.Lend() {
			g.resume()
			return
		}
		// We are in the background. SIGCONT tells us that we come to the foreground only if
		// we were stopped ourselves.
		g.foregroundC = time.After(feedbackInterval / 2)
	}
	g.child.TakeBack()
	if again {
		return
	}
	if g.child.OnTerminal() && isStop(by) {
		g.run.infof("stopped, and still holding %s: Ctrl-Z goes on, Ctrl-C ends it", g.held)
		return
	}
	g.run.infof("the command was stopped (%v), and still holds %s", by, g.held)
}

// finish is called when the command has ended by itself or by a signal. If the supervisor ended
// it, or forwarded a termination signal, finish kills what the command left running. It
// returns the exit status.
func (g *supervisor) finish(end exitStatus) exitStatus {
	if g.endCode != 0 || g.termForwarded {
		g.killRemaining()
	}
	g.child.TakeBack()
	if g.held.validity() <= 0 && !g.lost {
		g.lost = true
		g.run.messagef("lost %s: %s; the command ended by itself just now", g.held, g.run.lossCause(g.held))
	}
	switch {
	case g.lost:
		return exitStatus{code: exitLost}
	case g.endCode != 0:
		return exitStatus{code: g.endCode}
	}
	return end
}

// killRemaining kills whatever the command left running, so that nothing of it
// runs beside the next holder.
func (g *supervisor) killRemaining() {
	g.child.Terminate()
	for g.child.Alive() && time.Now().Before(g.killAt) && g.held.validity() > g.killThreshold {
		g.child.Vanish(10 * time.Millisecond)
	}
	if !g.child.Kill(g.run.killAfter.value + time.Second) {
		g.run.messagef("warning: the system can't kill all processes that %s started", printable(g.run.argv[0]))
	}
}

// An exitStatus is how this process ends.
type exitStatus struct {
	code int
	// Die of SIGINT, because the user typed it: shells then stop the script or loop around us,
	// which an exit code can't do.
	bySIGINT bool
	// The keyboard's SIGINT reached only the command: send it to our whole process group.
	toGroup bool
}

// renewals records the outcome of the last renewal.
type renewals struct{ last atomic.Pointer[error] }

func (r *renewals) trace(a *app) *snib.Trace {
	return &snib.Trace{Renewed: func(e snib.RenewedEvent) {
		r.last.Store(&e.Err)
		if e.Err != nil && !errors.Is(e.Err, snib.ErrLost) {
			a.verbosef("%s was not renewed, %s left: %s", printable(e.Name), short(e.Left), message(e.Err))
		}
	}}
}

// lastError returns the error of the last renewal, or nil.
func (r *renewals) lastError() error {
	if err := r.last.Load(); err != nil {
		return *err
	}
	return nil
}
