package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/sniblock/snib/driver"
)

const (
	// idleTimeout is how long a name is watched after its last use, so that a process that
	// often waits for it need not begin a watch each time.
	idleTimeout = 5 * time.Second

	// watchCheckInterval is how long a watch may report nothing before it is compared with what
	// etcd has.
	watchCheckInterval = 2 * time.Second

	// retryDelay is the pause after a watch or a request that failed.
	retryDelay = 100 * time.Millisecond

	// maxStreams bounds the streams that hang: the client keeps those on which no watch began.
	maxStreams = 16
)

// errWatchEnded means that a watch was closed without an error, or does not report changes.
const errWatchEnded driver.Sentinel = "the watch has ended, or hangs"

// watchedQueues are the queues that a driver watches.
type watchedQueues struct {
	mu     sync.Mutex
	byName map[string]*watchedQueue

	// hung and refused name the stream for new watches. A stream that hangs, or whose login has
	// expired, keeps its watches, and gets no further ones. No later watch uses a stream that has
	// refused one, because it would refuse that too; the client closes it after its last watch.
	hung, refused atomic.Int64
}

// A watchedQueue is the queue of a lock as one watch shows it. It serves all callers in the
// process that wait for the lock, and the leases that are handed over within the process while
// nobody else waits.
type watchedQueue struct {
	d         *Driver
	name      string
	users     int         // guarded by watchedQueues.mu
	idleTimer *time.Timer // ends the watch after idleTimeout; guarded by watchedQueues.mu
	stop      context.CancelFunc

	mu       sync.Mutex
	live     bool // queue is that of etcd at revision, and later changes will be reported
	queue    queue
	revision int64
	waiters  map[string]*waiter  // by their keys
	leases   map[*lease]struct{} // to be told of waiters in other processes
	err      error               // why the last watch failed, unless the queue was read since
}

// A waiter is an attempt that waits in a queue.
type waiter struct {
	info     info
	key      string
	revision int64         // that created the key
	woken    chan struct{} // of capacity 1: check the queue again
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it will check anyway
	}
}

// joinQueue returns the queue of a name and registers w for its changes. The caller calls
// leave.
func (d *Driver) joinQueue(name string, w *waiter) (*watchedQueue, error) {
	q, err := d.retainQueue(name)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters[w.key] = w
	return q, nil
}

// observeWaiters makes the queue tell l when another process waits, until stopObserving.
func (d *Driver) observeWaiters(l *lease) {
	q, err := d.retainQueue(l.req.Name)
	if err != nil {
		l.signalWanted() // the driver is closed, and the lease about to be lost
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l.queue = q
	q.leases[l] = struct{}{}
	q.signalLeases()
}

// stopObserving undoes observeWaiters, once.
func (l *lease) stopObserving() {
	q := l.queue
	if q == nil {
		return
	}
	q.mu.Lock()
	_, observes := q.leases[l]
	delete(q.leases, l)
	q.mu.Unlock()
	if observes {
		q.release()
	}
}

// retainQueue returns the queue of a name, and begins to watch it if need be. The caller calls
// release.
func (d *Driver) retainQueue(name string) (*watchedQueue, error) {
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	q := d.queues.byName[name]
	if q == nil {
		ctx, stop := context.WithCancel(d.life.Context())
		q = &watchedQueue{
			d: d, name: name, stop: stop,
			waiters: map[string]*waiter{}, leases: map[*lease]struct{}{},
		}
		if !d.life.Go(func() { q.run(ctx) }) {
			stop()
			return nil, driver.ErrClosed
		}
		d.queues.byName[name] = q
	}
	if q.idleTimer != nil {
		q.idleTimer.Stop()
		q.idleTimer = nil
	}
	q.users++
	return q, nil
}

func (q *watchedQueue) leave(w *waiter) {
	q.mu.Lock()
	delete(q.waiters, w.key)
	q.mu.Unlock()
	q.release()
}

// release ends one use of the queue.
func (q *watchedQueue) release() {
	queues := &q.d.queues
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if q.users--; q.users > 0 {
		return
	}
	q.idleTimer = time.AfterFunc(idleTimeout, q.stopIfIdle)
}

// stopIfIdle ends the watch if nobody has used the queue since.
func (q *watchedQueue) stopIfIdle() {
	queues := &q.d.queues
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if q.users == 0 && queues.byName[q.name] == q {
		delete(queues.byName, q.name)
		q.stop()
	}
}

// run watches the queue until nobody uses it any more.
func (q *watchedQueue) run(ctx context.Context) {
	defer q.stop()
	for ctx.Err() == nil {
		err := q.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		q.d.queues.hung.Add(1) // this stream may hang, so the next watch uses another one
		q.onWatchFailed(err)
		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
}

// onWatchFailed records that there is no watch. Leases are told that they are wanted: they
// would not learn of later waiters, which must not starve. If the error is permanent, all
// waiters wake to get it.
func (q *watchedQueue) onWatchFailed(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.live, q.err = false, err
	for l := range q.leases {
		l.signalWanted()
	}
	if isPermanent(err) {
		q.wakeAll()
	}
}

// watchOnce watches the name until the watch fails or is found to hang. It begins the watch
// first, at no particular revision, and then reads the queue: if a watch asks for a past
// revision, etcd serves it with a loop that runs only ten times a second.
func (q *watchedQueue) watchOnce(ctx context.Context) error {
	queues := &q.d.queues
	refused := queues.refused.Load()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "snib-stream",
		fmt.Sprint(refused, ".", queues.hung.Load()%maxStreams)))
	defer cancel()
	begin := time.AfterFunc(callTimeout, cancel) // Watch returns only when etcd has announced it
	events := q.d.client.Watch(clientv3.WithRequireLeader(ctx), prefixOf(q.name), clientv3.WithPrefix(),
		clientv3.WithCreatedNotify())
	if !begin.Stop() {
		return q.d.diagnoseNoAnswer(q.d.life.Context())
	}
	timer := time.NewTimer(watchCheckInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case resp, open := <-events:
			switch {
			case !open:
				return errWatchEnded
			case resp.Err() != nil:
				if !isTransient(resp.Err()) { // else the stream itself has ended
					queues.refused.CompareAndSwap(refused, refused+1)
				}
				return resp.Err()
			case !resp.Created:
				q.apply(resp.Events)
			default:
				_, err := q.refresh(ctx)
				if err != nil && isTransient(err) && ctx.Err() == nil {
					// Another member may answer now. The read of the next watch may go to the
					// same member as this one.
					_, err = q.refresh(ctx)
				}
				if err != nil {
					return err
				}
			}
		case <-timer.C:
			behind, err := q.refresh(ctx)
			if err != nil {
				return err
			}
			if behind {
				return errWatchEnded
			}
		}
		timer.Reset(watchCheckInterval)
	}
}

// refresh reads the queue from etcd. behind is set if the watch had not reported everything in
// it.
func (q *watchedQueue) refresh(ctx context.Context) (behind bool, err error) {
	resp, err := q.d.getKeys(ctx, q.name)
	if err != nil {
		return false, err
	}
	latest := parseQueue(q.name, resp.Kvs)
	q.mu.Lock()
	defer q.mu.Unlock()
	same := slices.EqualFunc(latest, q.queue, func(a, b entry) bool { return a.key == b.key && a.revision == b.revision })
	behind = q.live && !same
	if !q.live || !same {
		q.wakeAll()
	}
	q.queue, q.revision, q.live, q.err = latest, resp.Header.Revision, true, nil
	q.signalLeases()
	return behind, nil
}

// apply applies the events of the watch.
func (q *watchedQueue) apply(events []*clientv3.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ev := range events {
		if ev.Kv.ModRevision <= q.revision || !isKeyOf(ev.Kv.Key, q.name) {
			continue // the queue was read later
		}
		i := q.queue.find(string(ev.Kv.Key))
		switch {
		case ev.Type == clientv3.EventTypeDelete && i >= 0:
			q.wakeWaiter(q.queue[i].key)
			q.queue = slices.Delete(q.queue, i, i+1)
		case ev.Type == clientv3.EventTypePut:
			e, _ := parseEntry(ev.Kv)
			if i >= 0 {
				q.queue[i] = e
			} else {
				q.queue = append(q.queue, e) // it was created after all others
			}
			q.wakeWaiter(e.key)
		}
	}
	if n := len(events); n > 0 {
		q.revision = max(q.revision, events[n-1].Kv.ModRevision)
	}
	holders, _ := q.queue.split() // who waits behind them need not look
	for _, e := range holders {
		q.wakeWaiter(e.key)
	}
	q.signalLeases()
}

// wakeWaiter wakes the waiter with this key. It is called with the mutex held.
func (q *watchedQueue) wakeWaiter(key string) {
	if w := q.waiters[key]; w != nil {
		w.wake()
	}
}

// signalLeases tells a lease that it is wanted if a waiter behind it belongs to another
// process. The queue may be behind: a lease that was created after all the waiters in it is not
// told. It is called with the mutex held.
func (q *watchedQueue) signalLeases() {
	if len(q.leases) == 0 {
		return
	}
	_, waiting := q.queue.split()
	for l := range q.leases {
		if slices.ContainsFunc(waiting, func(e entry) bool {
			return e.revision > l.revision &&
				e.etcdLease != int64(l.s.id)
		}) {
			l.signalWanted()
		}
	}
}

// wakeAll wakes all waiters. It is called with the mutex held.
func (q *watchedQueue) wakeAll() {
	for _, w := range q.waiters {
		w.wake()
	}
}

// outage returns why the queue is not known, or nil. A watch that has just ended is no reason.
func (q *watchedQueue) outage() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if errors.Is(q.err, errWatchEnded) {
		return nil
	}
	return q.err
}

// judge returns the verdict on w, and an error if another kind of lock is in its way. While there
// is no watch, w waits.
func (q *watchedQueue) judge(w *waiter) (verdict, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.queue.find(w.key)
	found := i >= 0 && q.queue[i].revision == w.revision // and not an earlier key of that name
	switch {
	case isPermanent(q.err):
		return waits, q.err
	case !q.live, !found && q.revision < w.revision:
		return waits, nil
	case !found:
		return gone, nil
	}
	return q.queue[:i].judge(w.info)
}
