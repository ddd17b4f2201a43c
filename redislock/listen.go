package redislock

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// linger is how long a subscription outlives its need.
	linger = 5 * time.Second

	// longHold is how long the process may hold something before it listens for those who want it.
	longHold = 50 * time.Millisecond
)

// A listener keeps the subscriptions of this process: to its own channel, on which holders hear that another process waits, and to those on
// which the locks' slots tell waiters. On one server these are the same; in a Cluster each slot has its own, if the servers have
// sharded pub/sub.
type listener struct {
	d       *Driver
	process string // the channel of this process
	sharded bool

	mu        sync.Mutex
	open      map[string]*subscription // by channel
	ending    map[string]chan struct{} // closed when the last subscription to a channel has ended
	scheduled bool                     // a look at whether something is held for long
}

// A subscription is one channel that is listened to. It is guarded by listener.mu.
type subscription struct {
	channel string
	sharded bool
	users   int
	up      chan struct{} // closed while the server has confirmed it
	isUp    bool
	err     error // of the last attempt
	failed  chan struct{}
	cancel  context.CancelFunc
}

func (l *listener) init(d *Driver, sharded bool) {
	l.d, l.sharded = d, sharded
	l.process = "snib.c:" + rand.Text()
	l.open, l.ending = make(map[string]*subscription), make(map[string]chan struct{})
}

// channel returns where waiters for a lock of the slot are told.
func (l *listener) channel(slot uint16) string {
	if !l.sharded {
		return l.process
	}
	id := strings.TrimPrefix(l.process, "snib.c:")
	return "snib.c:{" + tagOf(slot) + "}:" + id
}

// ready joins the subscription that a needs if it is up, and else returns nil.
func (l *listener) ready(a *ask) *subscription {
	if a.req.NoWait {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.open[l.channel(a.slot)]
	if s == nil || !s.isUp {
		return nil
	}
	s.users++
	return s
}

// join returns the subscription that a needs once it is up.
func (l *listener) join(ctx context.Context, a *ask) (*subscription, error) {
	l.mu.Lock()
	s := l.subscribe(l.channel(a.slot), l.sharded)
	s.users++
	up, failed := s.up, s.failed
	l.mu.Unlock()
	select {
	case <-up:
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

// holding makes sure that the process hears of it when others want what it holds for longer than a moment.
func (l *listener) holding() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scheduled || l.open[l.process] != nil {
		return
	}
	l.scheduled = true
	time.AfterFunc(longHold, func() {
		held := l.d.holds()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.scheduled = false
		if held && l.d.life.Err() == nil {
			l.subscribe(l.process, false)
		}
	})
}

// subscribe returns the subscription to a channel, new or not. It is called with l.mu held.
func (l *listener) subscribe(channel string, sharded bool) *subscription {
	s := l.open[channel]
	if s == nil {
		ctx, cancel := context.WithCancel(l.d.life)
		s = &subscription{
			channel: channel, sharded: sharded, cancel: cancel,
			up: make(chan struct{}), failed: make(chan struct{}),
		}
		l.open[channel] = s
		before, ended := l.ending[channel], make(chan struct{})
		l.ending[channel] = ended
		go func() {
			defer l.end(channel, ended)
			if before != nil {
				<-before // its end must not be taken for ours
			}
			l.keep(ctx, s)
		}()
		time.AfterFunc(linger, func() { l.retire(s) })
	}
	return s
}

// end notes that a subscription has ended.
func (l *listener) end(channel string, ended chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(ended)
	if l.ending[channel] == ended {
		delete(l.ending, channel)
	}
}

// retire ends a subscription that nobody needs any more, or looks again later.
func (l *listener) retire(s *subscription) {
	held := s.channel == l.process && l.d.holds()
	l.mu.Lock()
	defer l.mu.Unlock()
	if (s.users > 0 || held) && l.d.life.Err() == nil {
		time.AfterFunc(linger, func() { l.retire(s) })
		return
	}
	delete(l.open, s.channel)
	s.cancel()
}

// keep subscribes, again and again when the connection is lost.
func (l *listener) keep(ctx context.Context, s *subscription) {
	var trouble backoff
	for ctx.Err() == nil {
		err := l.d.conn.Subscribe(ctx, s.channel, s.sharded,
			func() {
				trouble = backoff{}
				l.mu.Lock()
				if !s.isUp {
					s.isUp = true
					close(s.up)
				}
				l.mu.Unlock()
				l.d.catchUp(s.channel) // what was said before was not heard
			},
			l.d.hear)
		l.mu.Lock()
		if s.isUp {
			s.isUp, s.up = false, make(chan struct{})
		}
		s.err = err
		close(s.failed)
		s.failed = make(chan struct{})
		l.mu.Unlock()
		pause, _ := trouble.next(false)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.open {
		s.cancel()
	}
}

// hear takes a message: the id of a request, and a word. It may come from anybody who may publish, so it is a hint: the store is asked
// whether a lock was granted, or a lease broken. Who can't guess the id causes nothing at all.
func (d *Driver) hear(payload string) {
	about, word, _ := strings.Cut(payload, " ")
	id, err := strconv.ParseUint(about, 10, 64)
	if err != nil {
		return // not from a script of ours
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a, l := d.asks[id], d.leases[id]
	switch {
	case l != nil && word == "w":
		l.tell()
	case l != nil && word == "b":
		for _, other := range d.leases { // the owner may have asked more than once for what it holds
			if other == l || other.req.Owner == l.req.Owner && other.keys[0] == l.keys[0] {
				d.doubt(other)
			}
		}
	case a != nil && word == "w":
		a.wanted = true // granted, and not known here yet
	case a != nil && word == "b":
		a.doubted = true // likewise
	case a != nil && word == "k":
		a.wake()
	}
}

// wake makes an ask ask again.
func (a *ask) wake() {
	select {
	case a.woken <- struct{}{}:
	default: // it is about to ask again
	}
}

// holds reports whether this process holds anything.
func (d *Driver) holds() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.leases) > 0
}

// catchUp finds out what this process was not told while it did not listen: waiters ask again, and the store is asked about all that is
// held. A server that has restarted without its memory ends those holds so.
func (d *Driver) catchUp(channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.asks {
		if d.listener.channel(a.slot) == channel {
			a.wake()
		}
	}
	if channel == d.listener.process {
		for _, l := range d.leases {
			d.doubt(l)
		}
	}
}
