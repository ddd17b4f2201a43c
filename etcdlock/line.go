package etcdlock

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/sniblock/snib/driver"
)

const (
	// linger is how long a name is watched when nobody in the process waits for it any more: who waits often begins at once.
	linger = 5 * time.Second

	// quiet is how long a watch may say nothing before it is compared with what etcd has.
	quiet = 2 * time.Second

	// retryAfter is the pause after a watch that failed.
	retryAfter = 100 * time.Millisecond
)

// errWatchEnded is why a watch failed that was closed without a word.
const errWatchEnded driver.Sentinel = "the watch has ended"

// errSilent is why a watch is given up that does not tell what has happened.
const errSilent driver.Sentinel = "the watch hangs"

// lines are the names that a driver watches.
type lines struct {
	mu     sync.Mutex
	byName map[string]*line

	// stream numbers the streams for watches. One that hangs keeps the watches that it has; new ones begin on the next.
	stream atomic.Int64
}

// A line is a lock's queue as one watch shows it, for all in the process who wait for that lock, or hold it and hand it over
// among themselves while nobody else waits.
type line struct {
	d     *Driver
	name  string
	users int         // guarded by lines.mu
	late  *time.Timer // ends it after linger; guarded by lines.mu
	stop  context.CancelFunc

	mu       sync.Mutex
	live     bool // the queue is that of etcd at revision, and what comes later will be told
	queue    queue
	revision int64
	waiters  map[*waiter]struct{}
	byKey    map[string]*waiter
	holds    map[*hold]struct{} // to be told of waiters in other processes
	err      error              // why there is no queue, if that is not for the moment
}

// A waiter is a request in the line.
type waiter struct {
	note note
	hint chan struct{} // of one: look at the line

	// Set once the key is put; guarded by line.mu.
	key      string
	revision int64
}

func (w *waiter) wake() {
	select {
	case w.hint <- struct{}{}:
	default: // it is about to look anyway
	}
}

// join returns the line of a name, for w to be told of its changes. The caller leaves it.
func (d *Driver) join(name string, w *waiter) (*line, error) {
	l, err := d.use(name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[w] = struct{}{}
	return l, nil
}

// attend has h told of those who wait in other processes, until unattend.
func (d *Driver) attend(h *hold) {
	l, err := d.use(h.req.Name)
	if err != nil {
		h.tellWanted() // the driver is closed, and the hold about to be lost
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.line = l
	l.holds[h] = struct{}{}
	l.tellHolds()
}

// unattend undoes attend, once.
func (h *hold) unattend() {
	l := h.line
	if l == nil {
		return
	}
	l.mu.Lock()
	_, attends := l.holds[h]
	delete(l.holds, h)
	l.mu.Unlock()
	if attends {
		l.letGo()
	}
}

// use returns the line of a name, and begins to watch if need be. The caller lets go of it.
func (d *Driver) use(name string) (*line, error) {
	d.lines.mu.Lock()
	defer d.lines.mu.Unlock()
	l := d.lines.byName[name]
	if l == nil {
		ctx, stop := context.WithCancel(d.life.Context())
		l = &line{
			d: d, name: name, stop: stop,
			waiters: map[*waiter]struct{}{}, byKey: map[string]*waiter{}, holds: map[*hold]struct{}{},
		}
		if !d.life.Go(func() { l.run(ctx) }) {
			stop()
			return nil, driver.ErrClosed
		}
		d.lines.byName[name] = l
	}
	if l.late != nil {
		l.late.Stop()
		l.late = nil
	}
	l.users++
	return l, nil
}

func (l *line) leave(w *waiter) {
	l.mu.Lock()
	delete(l.waiters, w)
	delete(l.byKey, w.key)
	l.mu.Unlock()
	l.letGo()
}

// letGo ends one use of the line.
func (l *line) letGo() {
	all := &l.d.lines
	all.mu.Lock()
	defer all.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	l.late = time.AfterFunc(linger, l.end)
}

// end ends the line if nobody has come to use it since.
func (l *line) end() {
	all := &l.d.lines
	all.mu.Lock()
	defer all.mu.Unlock()
	if l.users == 0 && all.byName[l.name] == l {
		delete(all.byName, l.name)
		l.stop()
	}
}

// busy reports whether the driver knows, without asking, that a lock is held.
func (d *Driver) busy(name string) bool {
	d.lines.mu.Lock()
	l := d.lines.byName[name]
	d.lines.mu.Unlock()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live && len(l.queue) > 0
}

// run watches until nobody is interested any more.
func (l *line) run(ctx context.Context) {
	defer l.stop()
	for ctx.Err() == nil {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		l.d.lines.stream.Add(1) // the next watch is to begin on another one: this one may hang
		l.fail(err)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// fail notes that there is no watch, and tells those who wait if there won't be one. Holders are told that they are wanted: they
// would not be told when they are, and others must not starve for it.
func (l *line) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = false
	for h := range l.holds {
		h.tellWanted()
	}
	if refused(err) {
		l.err = err
		l.wakeAll()
	}
}

// follow watches the name once, until that fails or is found to hang. The watch begins at no revision in particular: one
// that asks for a revision which etcd has passed is served by a loop that looks ten times a second. So first it is begun,
// and then the queue is read.
func (l *line) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "snib-stream", strconv.FormatInt(l.d.lines.stream.Load(), 10)))
	defer cancel()
	events := l.d.client.Watch(clientv3.WithRequireLeader(ctx), prefixOf(l.name), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case said, open := <-events:
			switch {
			case !open:
				return errWatchEnded
			case said.Err() != nil:
				return said.Err()
			case !said.Created:
				l.apply(said.Events)
			default:
				_, err := l.read(ctx)
				if err != nil && passing(err) && ctx.Err() == nil {
					// Another member may answer now. The next watch may have the turn of this one.
					_, err = l.read(ctx)
				}
				if err != nil {
					return err
				}
			}
		case <-timer.C:
			if !l.isLive() {
				return errSilent
			}
			behind, err := l.read(ctx)
			if err != nil {
				return err
			}
			if behind {
				return errSilent
			}
		}
		timer.Reset(quiet)
	}
}

func (l *line) isLive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
}

// read takes the queue from etcd. behind says that the watch had not told of all that is in it.
func (l *line) read(ctx context.Context) (behind bool, err error) {
	now, err := l.d.get(ctx, l.name)
	if err != nil {
		return false, err
	}
	q := queueOf(l.name, now.Kvs)
	l.mu.Lock()
	defer l.mu.Unlock()
	same := slices.EqualFunc(q, l.queue, func(a, b entry) bool { return a.key == b.key && a.revision == b.revision })
	behind = l.live && !same
	if !l.live || !same {
		l.wakeAll()
	}
	l.queue, l.revision, l.live, l.err = q, now.Header.Revision, true, nil
	l.tellHolds()
	return behind, nil
}

// apply takes what the watch has told.
func (l *line) apply(events []*clientv3.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ev := range events {
		if ev.Kv.ModRevision <= l.revision || !belongs(ev.Kv.Key, l.name) {
			continue // the queue was read later
		}
		i := l.queue.find(string(ev.Kv.Key))
		switch {
		case ev.Type == clientv3.EventTypeDelete && i >= 0:
			l.tellOwn(l.queue[i].key)
			l.queue = slices.Delete(l.queue, i, i+1)
		case ev.Type == clientv3.EventTypePut:
			e, _ := entryOf(ev.Kv)
			if i >= 0 {
				l.queue[i] = e
			} else {
				l.queue = append(l.queue, e) // it was created after all others
			}
			l.tellOwn(e.key)
		}
	}
	if n := len(events); n > 0 {
		l.revision = max(l.revision, events[n-1].Kv.ModRevision)
	}
	l.tellNext()
	l.tellHolds()
}

// tellOwn wakes the waiter whose key this is. It is called with the mutex held.
func (l *line) tellOwn(key string) {
	if w := l.byKey[key]; w != nil {
		w.wake()
	}
}

// tellNext wakes those who can hold now, and nobody who waits behind them. It is called with the mutex held.
func (l *line) tellNext() {
	next, _ := l.queue.split()
	for _, e := range next {
		l.tellOwn(e.key)
	}
}

// tellHolds tells the holders behind whom somebody waits who is not of this process. What the queue shows may be old: who holds by
// now came later than all that waits in it then, and is told nothing. It is called with the mutex held.
func (l *line) tellHolds() {
	if len(l.holds) == 0 {
		return
	}
	_, waiting := l.queue.split()
	for h := range l.holds {
		if slices.ContainsFunc(waiting, func(e entry) bool { return e.revision > h.revision && e.lease != int64(h.s.id) }) {
			h.tellWanted()
		}
	}
}

// wakeAll is called with the mutex held.
func (l *line) wakeAll() {
	for w := range l.waiters {
		w.wake()
	}
}

// ready waits until the watch has begun: what happens from then on will be told.
func (l *line) ready(ctx context.Context, w *waiter) error {
	for {
		l.mu.Lock()
		live, err := l.live, l.err
		l.mu.Unlock()
		if live || err != nil {
			return err
		}
		select {
		case <-w.hint:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stand notes with which key w stands in the queue.
func (l *line) stand(w *waiter, key string, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byKey, w.key)
	w.key, w.revision = key, revision
	l.byKey[key] = w
	w.wake()
}

// look says how w stands, and with what it clashes if it does.
func (l *line) look(w *waiter) (verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.queue.find(w.key)
	there := i >= 0 && l.queue[i].revision == w.revision // and not an earlier key of that name
	switch {
	case l.err != nil:
		return waits, l.err
	case !l.live, !there && l.revision < w.revision:
		return waits, nil
	case !there:
		return gone, nil
	}
	before := l.queue[:i]
	v := before.judge(w.note)
	if v == clashes {
		return v, before.clash(w.note)
	}
	return v, nil
}
