package zklock

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// A leaderContact records what is known of when the leader last heard of a session. The leader
// counts the session's timeout from then.
//
// The leader hears of the session at once when a connection begins or resumes it. After that it
// learns from the server that we are connected to, which reports twice in a tick which sessions
// have sent something since its last report. Even a request that the leader answers itself, a
// sync or a write, does not restart the count. So what we have sent counts only when a report
// with it must have reached the leader. That is the case when it was answered, half a tick has
// passed, and the leader has then answered another request, which took the same way behind the
// report. If the server dies before, the leader never learns of it.
//
// How long the session has lasted already does not help: a client that was paused, or could not
// get through, has sent nothing that counts, however promptly it is answered now.
type leaderContact struct {
	countsFrom driver.Instant // the leader counts from here or later
	unreported []exchange     // in order; the server may not have reported these yet
}

// An exchange is a message to a server and the arrival of its answer.
type exchange struct{ sent, answered driver.Instant }

// reportInterval is the longest time between two reports of a server: half a tick, and a
// timeout has at least two ticks.
func reportInterval(timeout time.Duration) time.Duration { return timeout / 4 }

// restart records that a server has taken the session up. It has asked the leader after it
// received what was sent at sent.
func (c *leaderContact) restart(sent driver.Instant) {
	if c.countsFrom.Before(sent) {
		c.countsFrom = sent
	}
	c.unreported = nil // that server may be dead
}

// add records an exchange. Of several in quick succession it keeps the first.
func (c *leaderContact) add(e exchange, timeout time.Duration) {
	if n := len(c.unreported); n > 0 && e.sent.Sub(c.unreported[n-1].sent) < timeout/100 {
		return
	}
	if c.countsFrom.Before(e.sent) {
		c.unreported = append(c.unreported, e)
	}
	for len(c.unreported) > 2 && c.unreported[1].answered.Sub(e.answered) <= -2*reportInterval(timeout) {
		// The next one counts for whatever is asked from now on; an idle session would
		// otherwise remember all its pings.
		c.unreported = c.unreported[1:]
	}
}

// leaseStart returns the instant from which a holder may count [leaseTTL], now that the leader
// has answered a request that was sent at start. That is start itself, unless the session may
// end before such a lease: then it is earlier by the difference.
func (c *leaderContact) leaseStart(start driver.Instant, timeout time.Duration) driver.Instant {
	for len(c.unreported) > 0 && c.unreported[0].answered.Sub(start) <= -reportInterval(timeout) {
		c.countsFrom, c.unreported = c.unreported[0].sent, c.unreported[1:]
	}
	if most := timeout - leaseTTL(timeout); start.Sub(c.countsFrom) > most {
		return c.countsFrom.Add(most)
	}
	return start
}

// retryIn returns how long to wait until another request may give a later leaseStart.
func (c *leaderContact) retryIn(now driver.Instant, timeout time.Duration) time.Duration {
	if len(c.unreported) == 0 {
		return reportInterval(timeout)
	}
	return max(time.Millisecond, c.unreported[0].answered.Add(reportInterval(timeout)).Left(now))
}
