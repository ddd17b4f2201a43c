package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/redlock/internal/quorum"
)

const (
	// idleTimeout is how long an unused subscription is kept.
	idleTimeout = 5 * time.Second

	// maxUnneeded is to how many channels a connection stays subscribed that are not needed any
	// more. Then it is made anew. It never sends UNSUBSCRIBE: the client sends PING after that, and
	// panics if the server answers it with an error, as one does whose disk is full.
	maxUnneeded = 10_000

	// maxChecks limits how many leases are checked at a time. After a reconnection, all leases are
	// due.
	maxChecks = 200

	// stragglerTimeout is how long other nodes may take to publish a release after the
	// first one has.
	stragglerTimeout = 5 * time.Millisecond
)

// A listener receives messages about releases, and about leases that were broken by force, on
// one connection to each node. It runs while somebody waits or holds a lock, and idleTimeout
// longer. All messages are hints: the driver asks the nodes before it acts on them.
type listener struct {
	d           *Driver
	maxUnneeded int

	mu          sync.Mutex
	topics      map[string]*topic // by channel
	subscribers []*subscriber     // nil while nobody waits or holds
	checks      chan struct{}     // has the capacity maxChecks; and an element for each check under way
	closed      bool
}

// A topic is the state of one channel: of a lock that is waited for, or of the leases of one
// driver. It is guarded by listener.mu.
type topic struct {
	l          *listener
	users      int
	idleSince  time.Time // when the last user left
	subscribed quorum.Set
	watches    map[*watch]bool
	leases     map[string]*lease // by nonce
}

// A watch collects the releases of a lock during one round of a waiter and the sleep after
// it. It begins before the round, so that no release between the two is missed. It is guarded
// by listener.mu.
type watch struct {
	released     quorum.Set // nodes that published a release since it began
	blocked      quorum.Set // nodes that refused the round
	armed        bool       // the round is over
	timerStarted bool       // stragglerTimeout runs since the first release
	waiters      int        // number of waiters, by the latest message
	hints        chan int   // has the capacity 1; receives the number of waiters
}

// A subscriber keeps the subscriptions at one node.
type subscriber struct {
	l      *listener
	node   *node
	wakeup chan struct{}   // has the capacity 1; the topics have changed
	ctx    context.Context //nolint:containedctx // ends with the subscriber
	cancel context.CancelFunc

	together atomic.Int64 // channels of the latest SUBSCRIBE
}

func (l *listener) init(d *Driver) {
	l.d, l.maxUnneeded, l.topics, l.checks = d, maxUnneeded, make(map[string]*topic), make(chan struct{}, maxChecks)
}

// subscribe subscribes to the releases of a lock. Its watch stands for the round before: a node
// that confirms the subscription counts as one that has published a release, because one may have
// been missed.
func (l *listener) subscribe(lock *lock) (*topic, *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startSubscribers()
	t := l.addUser(lock.waitersKey)
	w := t.addWatch()
	w.released = t.subscribed
	return t, w
}

// addUser adds a user to the topic of a channel, which it creates if need be. It is called
// with l.mu held.
func (l *listener) addUser(channel string) *topic {
	t := l.topics[channel]
	if t == nil {
		t = &topic{l: l, watches: make(map[*watch]bool), leases: make(map[string]*lease)}
		l.topics[channel] = t
		for _, s := range l.subscribers {
			s.wake()
		}
	}
	t.users++
	return t
}

func (l *listener) unsubscribe(t *topic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.removeUser()
}

// removeUser removes a user from the topic. It is called with listener.mu held.
func (t *topic) removeUser() {
	if t.users--; t.users == 0 {
		t.idleSince = time.Now()
	}
}

// startSubscribers starts a subscriber for each node, unless they run. It is called with l.mu held.
func (l *listener) startSubscribers() {
	if l.subscribers != nil || l.closed {
		return
	}
	for _, n := range l.d.nodes {
		s := &subscriber{l: l, node: n, wakeup: make(chan struct{}, 1)}
		s.ctx, s.cancel = context.WithCancel(l.d.life.Context()) //nolint:fatcontext // one for each subscriber
		l.subscribers = append(l.subscribers, s)
		l.d.background.Go(s.run)
	}
	time.AfterFunc(idleTimeout, l.removeIdleTopics)
}

// removeIdleTopics removes topics that have been unused for idleTimeout, and stops the
// subscribers when no topic is left. Leases that are over use none, also if nobody releases them.
func (l *listener) removeIdleTopics() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for channel, t := range l.topics {
		for _, le := range t.leases {
			if !le.isValid() {
				le.leaveTopic()
			}
		}
		if t.users == 0 && time.Since(t.idleSince) >= idleTimeout {
			delete(l.topics, channel)
		}
	}
	if len(l.topics) == 0 || l.closed {
		l.stopSubscribers()
		return
	}
	for _, s := range l.subscribers {
		s.wake()
	}
	time.AfterFunc(idleTimeout, l.removeIdleTopics)
}

// stopSubscribers stops all subscribers. It is called with l.mu held.
func (l *listener) stopSubscribers() {
	for _, s := range l.subscribers {
		s.cancel()
	}
	l.subscribers = nil
}

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.stopSubscribers()
}

// startWatch begins to collect releases.
func (t *topic) startWatch() *watch {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.addWatch()
}

// addWatch is startWatch with listener.mu held.
func (t *topic) addWatch() *watch {
	w := &watch{waiters: 1, hints: make(chan int, 1)}
	t.watches[w] = true
	return w
}

// arm is called after a round that was refused by the nodes in blocked. From then on the watch
// sends a hint when so many nodes have published a release that a majority is free, or
// stragglerTimeout after the first release.
func (t *topic) arm(w *watch, blocked quorum.Set) <-chan int {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	w.armed, w.blocked = true, blocked
	t.l.hintIfDue(w)
	return w.hints
}

// stopWatch ends a watch.
func (t *topic) stopWatch(w *watch) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	delete(t.watches, w)
}

// onMessage handles a message of a node. The payload is the number of waiters if a lock was
// released, or the nonce of a lease that was broken.
func (l *listener) onMessage(node int, channel, payload string) {
	waiters, _ := strconv.Atoi(payload)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	if t == nil {
		return
	}
	if le := t.leases[payload]; le != nil {
		l.checkLease(le)
	}
	t.noteRelease(node, min(max(waiters, 1), 100)) // anybody may publish any text
}

// noteRelease tells the watches that a node may have freed the lock. It is called with listener.mu
// held.
func (t *topic) noteRelease(node, waiters int) {
	for w := range t.watches {
		w.released |= 1 << node
		w.waiters = waiters
		t.l.hintIfDue(w)
	}
}

// hintIfDue sends the hint if it is due. It is called with l.mu held.
func (l *listener) hintIfDue(w *watch) {
	switch left := w.blocked &^ w.released; {
	case !w.armed || w.released == 0:
	case len(l.d.nodes)-left.Len() >= l.d.params.Quorum():
		w.sendHint(w.waiters)
	case !w.timerStarted:
		w.timerStarted = true
		waiters := w.waiters
		time.AfterFunc(stragglerTimeout, func() { w.sendHint(waiters) })
	}
}

func (w *watch) sendHint(waiters int) {
	select {
	case w.hints <- waiters:
	default:
	}
}

// onSubscribed records that a node publishes to this driver from now on. Earlier messages of
// releases and of lost leases were missed. The argument together is how many channels were
// subscribed to at once: so many waiters wake, perhaps for other locks.
func (l *listener) onSubscribed(node int, channel string, together int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	if t == nil {
		return
	}
	t.subscribed |= 1 << node
	for _, le := range t.leases {
		l.checkLease(le)
	}
	t.noteRelease(node, max(together, len(t.watches)))
}

// onDisconnected records that a node no longer publishes to this driver.
func (l *listener) onDisconnected(node int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.topics {
		t.subscribed &^= 1 << node
	}
}

// wake makes the subscriber compare its subscriptions with the topics.
func (s *subscriber) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// run keeps the subscriptions until the subscriber is stopped. It reconnects when the
// connection is lost.
func (s *subscriber) run() {
	defer s.cancel()
	for s.ctx.Err() == nil {
		s.listen()
		s.l.onDisconnected(s.node.index)
		select {
		case <-time.After(minRetryPause + rand.N(maxRetryPause)):
		case <-s.ctx.Done():
		}
	}
}

// listen keeps the subscriptions in line with the topics until the connection is lost.
func (s *subscriber) listen() {
	s.node.mu.Lock()
	client := s.node.client
	s.node.mu.Unlock()
	if client == nil {
		return
	}
	conn, _ := client.Dedicate() // it never goes back to the pool, which would unsubscribe: see maxUnneeded
	defer conn.Close()
	defer context.AfterFunc(s.ctx, conn.Close)()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { s.l.onMessage(s.node.index, m.Channel, m.Message) },
		OnSubscription: func(sub rueidis.PubSubSubscription) {
			if sub.Kind == "subscribe" {
				s.l.onSubscribed(s.node.index, sub.Channel, int(s.together.Load()))
			}
		},
	})
	channels := make(map[string]bool)
	for {
		if err := s.syncSubscriptions(conn, channels); err != nil {
			return
		}
		select {
		case <-s.wakeup:
		case <-lost: //nolint:errcheck // why does not matter: it is made anew
			return
		case <-s.ctx.Done():
			return
		}
	}
}

var errUnneeded = errors.New("the connection has too many channels that are not needed")

// syncSubscriptions subscribes to the channels of new topics. Channels are those to which conn was
// ever subscribed.
func (s *subscriber) syncSubscriptions(conn rueidis.DedicatedClient, channels map[string]bool) error {
	var more []string
	s.l.mu.Lock()
	for channel, t := range s.l.topics {
		if t.subscribed&(1<<s.node.index) == 0 { // a topic that is new may have the channel of an old one
			more = append(more, channel)
			channels[channel] = true
		}
	}
	unneeded := len(channels) - len(s.l.topics)
	s.l.mu.Unlock()
	switch {
	case unneeded > s.l.maxUnneeded:
		return errUnneeded
	case len(more) == 0:
		return nil
	}
	s.together.Store(int64(len(more)))
	return conn.Do(s.ctx, conn.B().Subscribe().Channel(more...).Build()).Error()
}
