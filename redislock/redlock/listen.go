package redlock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

const (
	// linger is how long a subscription outlives its need.
	linger = 5 * time.Second

	// readiness is how long a waiter waits for a majority of the nodes to confirm that it is subscribed. There is a timer behind
	// every wait, so no more than time is lost without it.
	readiness = 250 * time.Millisecond

	// straggle is how long after the first word of a release the others may come.
	straggle = 5 * time.Millisecond
)

// A listener hears of releases and of leases that are broken by force, on one connection to each node, while somebody waits or holds
// for longer than a moment, and a little longer. All that it hears is a hint: the nodes are asked before anything follows from it.
type listener struct {
	d *Driver

	mu     sync.Mutex
	topics map[string]*topic // by channel
	ears   []*ear            // nil while nobody waits or holds
	delay  *time.Timer       // opens the ears for leases; nil unless it runs
	closed bool
}

// A topic is a channel: a lock that is waited for, or the leases of one driver. It is guarded by listener.mu.
type topic struct {
	l       *listener
	users   int
	idle    time.Time // since when there are no users
	up      quorum.Set
	changed chan struct{} // closed when up grows
	watches map[*watch]bool
	leases  map[string][]*lease // by their nonces
}

// A watch is an attempt and the sleep after it. It begins before the attempt, so that no word of a release falls between them. It is guarded by
// listener.mu.
type watch struct {
	heard   quorum.Set // nodes that told of a release since it began
	blocked quorum.Set // nodes that refused the attempt
	asleep  bool       // the attempt is over
	first   bool       // a node has told something, and the others have a moment to do so
	crowd   int        // how many wait, by the last one that told
	hints   chan int   // of one: how many wait
}

// An ear is the subscriptions at one node.
type ear struct {
	l    *listener
	node *node
	wake chan struct{}   // of one: the topics have changed
	life context.Context //nolint:containedctx // ends with the ear
	end  context.CancelFunc
}

func (l *listener) init(d *Driver) {
	l.d, l.topics = d, make(map[string]*topic)
}

// join listens to a lock, from when it returns if that is possible.
func (l *listener) join(ctx context.Context, about *lock) *topic {
	l.mu.Lock()
	t := l.use(about.waitKey)
	if l.ears == nil && !l.closed {
		l.open()
	}
	l.mu.Unlock()
	timer := time.NewTimer(readiness)
	defer timer.Stop()
	for {
		l.mu.Lock()
		enough, changed := t.up.Len() >= l.d.params.Quorum(), t.changed
		l.mu.Unlock()
		if enough {
			return t
		}
		select {
		case <-changed:
		case <-timer.C:
			return t
		case <-ctx.Done():
			return t
		}
	}
}

// use returns the topic of a channel for one user more. It is called with l.mu held.
func (l *listener) use(channel string) *topic {
	t := l.topics[channel]
	if t == nil {
		t = &topic{l: l, changed: make(chan struct{}), watches: make(map[*watch]bool), leases: make(map[string][]*lease)}
		l.topics[channel] = t
		for _, e := range l.ears {
			e.stir()
		}
	}
	t.users++
	return t
}

func (l *listener) leave(t *topic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.drop()
}

// drop notes that there is one user less. It is called with listener.mu held.
func (t *topic) drop() {
	if t.users--; t.users == 0 {
		t.idle = time.Now()
	}
}

// open begins to listen. It is called with l.mu held.
func (l *listener) open() {
	for _, n := range l.d.nodes {
		e := &ear{l: l, node: n, wake: make(chan struct{}, 1)}
		e.life, e.end = context.WithCancel(l.d.life) //nolint:fatcontext // one for each ear
		l.ears = append(l.ears, e)
		l.d.running.Go(e.run)
	}
	time.AfterFunc(linger, l.retire)
}

// retire forgets topics that nobody has used for a while, and stops to listen when none is left.
func (l *listener) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for channel, t := range l.topics {
		if t.users == 0 && time.Since(t.idle) >= linger {
			delete(l.topics, channel)
		}
	}
	if len(l.topics) == 0 || l.closed {
		l.hush()
		return
	}
	for _, e := range l.ears {
		e.stir()
	}
	time.AfterFunc(linger, l.retire)
}

// hush ends all ears. It is called with l.mu held.
func (l *listener) hush() {
	for _, e := range l.ears {
		e.end()
	}
	l.ears = nil
}

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.delay != nil {
		l.delay.Stop()
	}
	l.hush()
}

// watch begins to take notice of releases.
func (t *topic) watch() *watch {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	w := &watch{hints: make(chan int, 1)}
	t.watches[w] = true
	return w
}

// sleep says that the attempt was refused by some nodes. From now on the watch gives a hint when so many of them have told of a release that a
// majority is free; or soon after the first, if the others are late.
func (t *topic) sleep(w *watch, blocked quorum.Set) <-chan int {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	w.asleep, w.blocked = true, blocked
	t.l.weigh(w)
	return w.hints
}

// unwatch ends a watch.
func (t *topic) unwatch(w *watch) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	delete(t.watches, w)
}

// hear takes the word of a node that a lock was released, and for how many that is news; or that a lease was broken, and which.
func (l *listener) hear(node int, channel, payload string) {
	crowd, _ := strconv.Atoi(payload) // what is no number of ours is none
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	if t == nil {
		return
	}
	l.doubt(t.leases[payload])
	for w := range t.watches {
		w.heard |= 1 << node
		w.crowd = crowd
		l.weigh(w)
	}
}

// weigh gives the hint if it is time. It is called with l.mu held.
func (l *listener) weigh(w *watch) {
	switch left := w.blocked &^ w.heard; {
	case !w.asleep || w.heard == 0:
	case len(l.d.nodes)-left.Len() >= l.d.params.Quorum():
		w.tell(w.crowd)
	case !w.first:
		w.first = true
		crowd := w.crowd
		time.AfterFunc(straggle, func() { w.tell(crowd) })
	}
}

func (w *watch) tell(crowd int) {
	select {
	case w.hints <- crowd:
	default:
	}
}

// confirm notes that a node tells of releases from now on. Who waits looks again: what was said before was not heard.
func (l *listener) confirm(node int, channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	if t == nil {
		return
	}
	t.up |= 1 << node
	for _, leases := range t.leases {
		l.doubt(leases)
	}
	close(t.changed)
	t.changed = make(chan struct{})
	for w := range t.watches {
		w.tell(len(t.watches))
	}
}

// deaf notes that a node tells nothing any more.
func (l *listener) deaf(node int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.topics {
		t.up &^= 1 << node
	}
}

// stir makes an ear look at the topics.
func (e *ear) stir() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run listens, again and again when the connection is lost.
func (e *ear) run() {
	defer e.end()
	for e.life.Err() == nil {
		e.listen()
		e.l.deaf(e.node.index)
		timer := time.NewTimer(leastPause + rand.N(mostPause))
		select {
		case <-timer.C:
		case <-e.life.Done():
		}
		timer.Stop()
	}
}

// listen keeps the subscriptions as the topics want them, until the connection is lost.
func (e *ear) listen() {
	e.node.mu.Lock()
	client := e.node.client
	e.node.mu.Unlock()
	if client == nil {
		return
	}
	conn, release := client.Dedicate()
	defer release()
	defer context.AfterFunc(e.life, conn.Close)()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { e.l.hear(e.node.index, m.Channel, m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" {
				e.l.confirm(e.node.index, s.Channel)
			}
		},
	})
	subscribed := make(map[string]bool)
	for {
		if err := e.subscribe(conn, subscribed); err != nil {
			return
		}
		select {
		case <-e.wake:
		case <-lost: //nolint:errcheck // why does not matter: it is made anew
			return
		case <-e.life.Done():
			return
		}
	}
}

// subscribe makes the subscriptions those that the topics want.
func (e *ear) subscribe(conn rueidis.DedicatedClient, subscribed map[string]bool) error {
	var more, less []string
	e.l.mu.Lock()
	for channel := range e.l.topics {
		if !subscribed[channel] {
			more = append(more, channel)
		}
	}
	for channel := range subscribed {
		if e.l.topics[channel] == nil {
			less = append(less, channel)
		}
	}
	e.l.mu.Unlock()
	for _, channel := range more {
		subscribed[channel] = true
	}
	for _, channel := range less {
		delete(subscribed, channel)
	}
	if len(more) > 0 {
		if err := conn.Do(e.life, conn.B().Subscribe().Channel(more...).Build()).Error(); err != nil {
			return err
		}
	}
	if len(less) > 0 {
		return conn.Do(e.life, conn.B().Unsubscribe().Channel(less...).Build()).Error()
	}
	return nil
}
