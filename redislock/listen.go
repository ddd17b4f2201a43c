package redislock

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// idleTimeout is how long a subscription is kept when it is not needed any more.
const idleTimeout = 5 * time.Second

// A listener keeps the subscriptions of this process: to its own channel, on which holders are
// told that another process waits, and to the channels on which waiters are told. On one server
// these are the same. In a Cluster whose servers have sharded pub/sub, each slot has a channel
// for waiters.
type listener struct {
	d       *Driver
	process string // the channel of this process
	sharded bool

	mu   sync.Mutex               // held before Driver.mu
	open map[string]*subscription // by channel
}

// A subscription is a subscription to one channel. It is guarded by listener.mu.
type subscription struct {
	channel     string
	sharded     bool
	users       int
	connected   chan struct{} // closed while the server has confirmed the subscription
	isConnected bool
	err         error // of the last attempt
	failed      chan struct{}
}

func (l *listener) init(d *Driver, sharded bool) {
	l.d, l.sharded = d, sharded
	l.process = d.conf.namespace.own("c:") + rand.Text()
	l.open = make(map[string]*subscription)
}

// channel returns the channel on which waiters for a lock of the slot are told.
func (l *listener) channel(slot uint16) string {
	if !l.sharded {
		return l.process
	}
	own := l.d.conf.namespace.own("c:")
	return own + "{" + tagOf(slot) + "}:" + strings.TrimPrefix(l.process, own)
}

// joinIfConnected joins the subscription that a needs if it is connected; otherwise it returns
// nil.
func (l *listener) joinIfConnected(a *attempt) *subscription {
	if a.req.NoWait {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.open[l.channel(a.slot)]
	if s == nil || !s.isConnected {
		return nil
	}
	s.users++
	return s
}

// join returns the subscription that a needs once it is connected.
func (l *listener) join(ctx context.Context, a *attempt) (*subscription, error) {
	l.mu.Lock()
	s := l.subscribe(l.channel(a.slot), l.sharded)
	s.users++
	connected, failed := s.connected, s.failed
	l.mu.Unlock()
	select {
	case <-connected:
		return s, nil
	case <-failed:
		l.leave(s)
		l.mu.Lock()
		defer l.mu.Unlock()
		return nil, s.err
	case <-ctx.Done():
		l.leave(s)
		return nil, context.Cause(ctx)
	}
}

func (l *listener) leave(s *subscription) {
	if s != nil {
		l.mu.Lock()
		s.users--
		l.mu.Unlock()
	}
}

// listenForHolders subscribes for the messages to holders.
func (d *Driver) listenForHolders() {
	d.listener.mu.Lock()
	defer d.listener.mu.Unlock()
	if !d.life.Over() {
		d.listener.subscribe(d.listener.process, false)
	}
}

// subscribe returns the subscription to a channel, and starts it if there is none. The caller
// holds l.mu.
func (l *listener) subscribe(channel string, sharded bool) *subscription {
	s := l.open[channel]
	if s == nil {
		s = &subscription{
			channel: channel, sharded: sharded, connected: make(chan struct{}), failed: make(chan struct{}),
		}
		l.open[channel] = s
		go l.run(s)
	}
	return s
}

// run keeps a subscription while it is needed. One that somebody joins while it ends begins anew: a
// second one beside it could take its end for its own.
func (l *listener) run(s *subscription) {
	for needed := true; needed; {
		ctx, cancel := context.WithCancel(l.d.life.Context())
		time.AfterFunc(idleTimeout, func() { l.endIfIdle(s, cancel) })
		l.listen(ctx, s)
		cancel()
		l.mu.Lock()
		if needed = l.isNeeded(s); !needed {
			delete(l.open, s.channel)
		}
		l.mu.Unlock()
	}
}

// endIfIdle ends a subscription that nobody needs any more, or that is of no use; otherwise it
// checks again after idleTimeout.
func (l *listener) endIfIdle(s *subscription, end context.CancelFunc) {
	isDeaf := l.isDeaf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isNeeded(s) && !isDeaf {
		time.AfterFunc(idleTimeout, func() { l.endIfIdle(s, end) })
	} else {
		end()
	}
}

// isDeaf reports whether the server that executes our commands does not know the subscription.
// After a failover, that may be at the old master, which our commands left although it still
// answers. In a Cluster, PUBLISH counts the subscribers of one of many servers.
func (l *listener) isDeaf(s *subscription) bool {
	l.mu.Lock()
	isConnected := s.isConnected
	l.mu.Unlock()
	if !isConnected || l.d.conn.IsCluster() {
		return false
	}
	ctx, cancel := context.WithTimeout(l.d.life.Context(), ioTimeout)
	defer cancel()
	r := l.d.eval(ctx, Call{Command: "PUBLISH", Keys: []string{s.channel}, Args: []string{""}})[0]
	return r.Err == nil && slices.Equal(r.Lines, []string{"0"})
}

// isNeeded reports whether somebody needs a subscription. The caller holds l.mu.
func (l *listener) isNeeded(s *subscription) bool {
	return !l.d.life.Over() && (s.channel == l.process && l.d.hasLeases() || s.users > 0)
}

// listen subscribes until ctx is done, again whenever the connection is lost.
func (l *listener) listen(ctx context.Context, s *subscription) {
	var retries rediskit.Backoff
	for ctx.Err() == nil {
		err := l.d.conn.Subscribe(ctx, s.channel, s.sharded,
			func() {
				retries = rediskit.Backoff{}
				l.mu.Lock()
				if !s.isConnected {
					s.isConnected = true
					close(s.connected)
				}
				l.mu.Unlock()
				l.d.catchUp(s.channel) // earlier messages were missed
			},
			l.d.onMessage)
		l.mu.Lock()
		if s.isConnected {
			s.isConnected, s.connected = false, make(chan struct{})
		}
		if ctx.Err() == nil { // else whoever joins waits for the next one
			s.err = err
			close(s.failed)
			s.failed = make(chan struct{})
		}
		l.mu.Unlock()
		pause, _ := retries.Next(retryTimeout)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// onMessage handles a message: the id of a request, and a word. Anybody with the right to
// publish may send one, so it is only a hint: the driver asks the store whether a lock was
// granted, or a lease broken. A sender that can't guess the id has no effect at all.
func (d *Driver) onMessage(payload string) {
	idText, word, _ := strings.Cut(payload, " ")
	id, err := strconv.ParseUint(idText, 10, 64)
	if err != nil {
		return // not from one of our scripts
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a, l := d.attempts[id], d.leases[id]
	switch {
	case l != nil && word == hintWanted:
		l.markWanted()
	case l != nil && word == hintBroken:
		d.verifyLater(l)
	case a != nil && word == hintWanted: // granted, but we do not know yet
		a.lease.markWanted()
	case a != nil && word == hintBroken: // likewise
		a.maybeBroken = true
	case a != nil && word == hintTurn:
		a.wake()
	}
}

// wake makes an attempt send its request again.
func (a *attempt) wake() {
	select {
	case a.woken <- struct{}{}:
	default: // it is about to send anyway
	}
}

// hasLeases reports whether this process holds anything. It forgets the leases that are over:
// nobody may renew or release them any more.
func (d *Driver) hasLeases() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := driver.Now()
	maps.DeleteFunc(d.leases, func(_ uint64, l *lease) bool { return l.until.Reached(now) })
	return len(d.leases) > 0
}

// catchUp makes up for the messages that this process missed while it was disconnected: waiters
// send again, and all leases are verified. So the process learns that another waits, and that a
// server which restarted without its memory has ended its holds.
func (d *Driver) catchUp(channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attempts {
		if d.listener.channel(a.slot) == channel {
			a.wake()
		}
	}
	if channel == d.listener.process {
		for _, l := range d.leases {
			d.verifyLater(l)
		}
	}
}
