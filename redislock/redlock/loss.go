package redlock

import (
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// breakPrefix begins the channel on which a driver hears that leases of its own were broken by force. It ends with what all nonces of the
// driver begin with.
const breakPrefix = "snib.rb:"

// breakChannel returns the channel of the driver whose attempt a nonce belongs to.
func breakChannel(nonce string) string {
	id, _, _ := strings.Cut(nonce, ".")
	return breakPrefix + id
}

// shortHold is how long a driver holds leases before it begins to listen for their loss: what is over sooner costs no connections.
const shortHold = 50 * time.Millisecond

// After a hint the holder looks at its lease at once, and again after pauses of this length while some nodes say that it has gone, and
// others that it is still there: force that has not reached a majority yet.
const (
	leastRecheck = 5 * time.Millisecond
	mostRecheck  = time.Second
)

// attach has the holder of a lease told if the lease is broken.
func (l *listener) attach(le *lease) {
	if le.req.OnLost == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	le.topic = l.use(breakChannel(le.attempt.nonce))
	le.topic.leases[le.attempt.nonce] = append(le.topic.leases[le.attempt.nonce], le)
	if l.ears == nil && l.delay == nil && !l.closed {
		l.delay = time.AfterFunc(shortHold, l.openForLeases)
	}
}

// openForLeases begins to listen if there are leases still.
func (l *listener) openForLeases() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = nil
	if l.ears != nil || l.closed {
		return
	}
	for _, t := range l.topics {
		if t.users > 0 {
			l.open()
			return
		}
	}
}

// detach ends attach.
func (l *listener) detach(le *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, nonce := le.topic, le.attempt.nonce
	if t == nil {
		return
	}
	le.topic = nil
	t.leases[nonce] = slices.DeleteFunc(t.leases[nonce], func(other *lease) bool { return other == le })
	if len(t.leases[nonce]) == 0 {
		delete(t.leases, nonce)
	}
	t.drop()
}

// doubt has leases looked at. It is called with l.mu held.
func (l *listener) doubt(leases []*lease) {
	for _, le := range leases {
		switch {
		case l.closed:
		case le.checking:
			le.doubted = true
		default:
			le.checking = true
			l.d.running.Go(le.check)
		}
	}
}

// check asks the nodes whether the lease is still there, and tells the holder if it is not. Whoever may publish can make it ask, but not
// more often than every leastRecheck.
func (l *lease) check() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := leastRecheck; ; {
		select {
		case <-timer.C:
		case <-l.d.life.Done():
			return
		}
		e := l.extend(true)
		if e == nil { // released, or the holder knows
			return
		}
		timer.Reset(l.d.conf.timeout)
		e.wait(l.d.life, timer)
		switch {
		case e.found:
			l.d.ears.detach(l)
			l.req.OnLost(driver.ErrLost)
			return
		case e.refused():
			pause = min(2*pause, mostRecheck)
		case l.doubtedAgain():
			pause = leastRecheck
		default:
			return
		}
		timer.Reset(pause)
	}
}

// doubtedAgain reports whether there was another hint since the last look began. If not, the look is over.
func (l *lease) doubtedAgain() bool {
	l.d.ears.mu.Lock()
	defer l.d.ears.mu.Unlock()
	l.checking, l.doubted = l.doubted, false
	return l.checking
}
