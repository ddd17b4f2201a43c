package zklock

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// A hearing is what is known of when the leader last heard of a session: it counts the timeout from then.
//
// It hears of us at once when a connection begins the session, or takes it up. After that it hears from the server that we are
// connected to, which reports twice in a tick who has said something since its last report. Not even a request that the leader
// answers itself, a sync or a write, makes it count anew. So what we have said counts when a report must have followed it and
// has reached the leader: it was answered, then half a tick went by, and then something was asked that the leader has answered,
// behind that report on the same way. If the server dies before that, nobody ever tells the leader.
//
// How long a session lasted without that is of no account: who was paused, or could not get through, has said nothing that
// counts, however promptly he is answered now.
type hearing struct {
	sure driver.Instant // the leader counts from here, or from later
	open []exchange     // the server may not have reported these yet; in order
}

// An exchange is something that was said to a server, and had got there when it was answered.
type exchange struct{ said, answered driver.Instant }

// reported is within which time a server reports: half a tick, of which a timeout has two at least.
func reported(timeout time.Duration) time.Duration { return timeout / 4 }

// begin is called when a server has taken the session up. It has asked the leader, after something was said to it.
func (h *hearing) begin(said driver.Instant) {
	if h.sure.Before(said) {
		h.sure = said
	}
	h.open = nil // that server may be dead
}

// add notes an exchange. Of those that follow one another closely the first will do.
func (h *hearing) add(e exchange, timeout time.Duration) {
	if n := len(h.open); n > 0 && e.said.Sub(h.open[n-1].said) < timeout/100 {
		return
	}
	if h.sure.Before(e.said) {
		h.open = append(h.open, e)
	}
	for len(h.open) > 2 && h.open[1].answered.Sub(e.answered) <= -2*reported(timeout) {
		h.open = h.open[1:] // the next one counts for whatever is asked from now on, and an idle session would remember all its pings
	}
}

// credit returns the moment from which a holder may count the [session.tenure], now that the leader has answered what was asked
// at start. That is start, unless the session may end before that: then it is as much earlier.
func (h *hearing) credit(start driver.Instant, timeout time.Duration) driver.Instant {
	for len(h.open) > 0 && h.open[0].answered.Sub(start) <= -reported(timeout) {
		h.sure, h.open = h.open[0].said, h.open[1:]
	}
	if most := timeout - tenure(timeout); start.Sub(h.sure) > most {
		return h.sure.Add(most)
	}
	return start
}

// next is how long it takes until asking once more may be worth more.
func (h *hearing) next(now driver.Instant, timeout time.Duration) time.Duration {
	if len(h.open) == 0 {
		return reported(timeout)
	}
	return max(time.Millisecond, h.open[0].answered.Add(reported(timeout)).Left(now))
}
