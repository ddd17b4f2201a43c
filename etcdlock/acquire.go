package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/sniblock/snib/driver"
)

// errRestart means that an attempt has lost its key or its session, and must start again.
const errRestart driver.Sentinel = "the key in the queue is gone"

// errKeyGone means that the key of a hold was deleted: by force, or with its session.
var errKeyGone = fmt.Errorf("%w: its key is gone", driver.ErrLost)

// An attempt is one call of Acquire.
type attempt struct {
	d    *Driver
	req  driver.Request
	info info

	s           *session
	key         string // attached to the etcd lease of s; "" for none
	nonce       string // part of the key
	revision    int64  // that created the key; 0 if the key is not known to exist
	maybePut    bool   // the key may exist
	mayPutLater bool   // a call that was abandoned may still put the key
	wasQueued   bool   // the attempt has waited in a queue
	isHeld      bool   // somebody held the lock when etcd last answered

	unreachableSince time.Time // when etcd became unreachable; zero if it is reachable
	lastErr          error     // of the last call that did not reach etcd; nil if it is reachable
}

// Acquire implements [driver.Driver]. A waiter whose session ends, or whose key is deleted,
// starts again at the end of the queue.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.life.Ready(ctx); err != nil {
		return nil, err
	}
	if err := d.check(req); err != nil {
		return nil, err
	}
	if req.NoWait {
		bounded, cancel := context.WithTimeoutCause(ctx, noWaitTimeout, errNoAnswer)
		defer cancel()
		ctx = bounded
	}
	a := &attempt{d: d, req: req, info: newInfo(req)}
	h, err := a.acquire(ctx)
	if err == nil && ctx.Err() == nil {
		return h, nil
	}
	if h != nil && h.lease.key == a.key { // the grant came too late
		h.lease.detach()
		// Another call of the owner may have got a handle on the same lease, and delete the key
		// by its own release.
		a.nonce = ""
	}
	a.cleanUp()
	if ctx.Err() != nil {
		err = a.contextError(context.Cause(ctx))
	}
	return nil, explain(err)
}

// acquire tries until the lock is granted, the error is final, or the time for retries is over.
func (a *attempt) acquire(ctx context.Context) (*handle, error) {
	for {
		began := time.Now()
		h, err := a.tryRound(ctx)
		if err == nil || ctx.Err() != nil || !a.shouldRetry(err, began) {
			return h, err
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-a.d.life.Done():
			return nil, driver.ErrClosed
		}
	}
}

// contextError returns the error of an attempt whose context has ended.
func (a *attempt) contextError(cause error) error {
	lastErr := a.lastErr
	if lastErr == nil && a.d.client.ActiveConnection().GetState() == connectivity.TransientFailure {
		lastErr = a.d.whyDisconnected()
	}
	switch {
	case errors.Is(cause, driver.ErrClosed), lastErr == nil && (a.wasQueued || a.isHeld):
		return cause
	case lastErr == nil: // nobody is known to hold the lock
		return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, cause)
	}
	return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, lastErr, cause)
}

// shouldRetry reports whether to try again after a round that began at began and failed with
// err. An attempt that has queued continues for [driver.Request.RetryLimit]: when it fails, the
// Locker does not retry, because it counts from the beginning of the wait.
func (a *attempt) shouldRetry(err error, began time.Time) bool {
	switch {
	case isLeaseGone(err) && a.s != nil:
		a.s.terminate(fmt.Errorf("%w: its session is over: etcd has ended it", driver.ErrLost))
		return true
	case errors.Is(err, errRestart), errors.Is(err, driver.ErrLost):
		return true
	case !isTransient(err):
		return false
	case !a.unreachableSince.IsZero():
	case a.wasQueued:
		// The round may have waited in the queue for hours. Its session asks all the time.
		a.unreachableSince = a.s.failingSince()
	default:
		a.unreachableSince = began
	}
	a.lastErr = err
	a.req.NoteWait(explain(err))
	if a.wasQueued {
		return time.Since(a.unreachableSince) < a.req.RetryLimit()
	}
	if r, unreachable := errors.AsType[*reachError](err); unreachable && !r.noAnswer {
		return false // there is no place to be kept, so the caller may as well ask again
	}
	return time.Since(a.unreachableSince) < min(unqueuedRetryTimeout, a.req.RetryLimit())
}

// tryRound tries once, in the current session.
func (a *attempt) tryRound(ctx context.Context) (*handle, error) {
	s, err := a.d.openSession(ctx)
	if err != nil {
		return nil, err
	}
	if l := a.d.leases.ownedBy(a.req); l != nil {
		return a.reacquire(ctx, l)
	}
	if a.key == "" || a.s != s {
		a.s, a.nonce = s, a.d.nonces.take()
		a.key = keyOf(a.req.Name, int64(s.id), a.nonce)
		a.revision, a.maybePut, a.mayPutLater = 0, false, false
	}
	if a.req.NoWait || !a.d.isKnownHeld(a.req.Name) {
		if h, err := a.putIfFree(ctx); a.req.NoWait || !errors.Is(err, driver.ErrHeld) {
			return h, err
		}
	}
	a.isHeld = true
	a.req.NoteWait(nil)
	return a.wait(ctx)
}

// reacquire returns a new handle on the lease that the owner already holds.
func (a *attempt) reacquire(ctx context.Context, l *lease) (*handle, error) {
	ka := l.s.requestKeepAlive()
	switch err := l.checkKey(ctx); {
	case errors.Is(err, driver.ErrLost):
		l.lose(err)
		return nil, errRestart
	case err != nil:
		return nil, err
	}
	start, err := ka.wait(ctx)
	if err != nil {
		return nil, err
	}
	return l.newHandle(a.req, start), nil
}

// putIfFree puts the key if the lock has none, and reads the queue otherwise.
func (a *attempt) putIfFree(ctx context.Context) (*handle, error) {
	ka := a.s.requestKeepAlive() // it is sent at the same time
	name := a.req.Name
	free := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(prefixOf(name)), "=", 0).WithPrefix(),
		clientv3.Compare(clientv3.LeaseValue(name), "=", 0), // also if there is no such key
	}
	answer, err := a.sendPut(ctx, free, a.putOp(true), []clientv3.Op{clientv3.OpGet(prefixOf(name), clientv3.WithPrefix()), readOneKey(name)})
	switch {
	case err != nil:
		return nil, err
	case answer.Succeeded:
		a.revision = answer.Header.Revision
		return a.grant(ctx, ka, true)
	}
	if err := checkOneKey(answer.Responses[1]); err != nil {
		return nil, err
	}
	q := parseQueue(a.req.Name, answer.Responses[0].GetResponseRange().Kvs)
	switch {
	case q.find(a.key) >= 0: // an earlier request was executed
	case q.judge(a.info) == kindClash:
		return nil, q.kindError(a.info)
	case q.judge(a.info) == waits:
		return nil, driver.ErrHeld
	}
	return a.putBehind(ctx, ka)
}

// putBehind puts the key behind the existing ones, and checks at once whether it holds the lock
// beside them.
func (a *attempt) putBehind(ctx context.Context, ka *keepAlive) (*handle, error) {
	read := clientv3.OpGet(prefixOf(a.req.Name), clientv3.WithPrefix())
	answer, err := a.sendPut(ctx, a.isAbsent(), a.putOp(false), []clientv3.Op{read}, read)
	if err != nil {
		return nil, err
	}
	last := answer.Responses[len(answer.Responses)-1]
	q := parseQueue(a.req.Name, last.GetResponseRange().Kvs)
	i := q.find(a.key)
	if i < 0 {
		return nil, errRestart
	}
	a.revision = q[i].revision
	switch before := q[:i]; before.judge(a.info) {
	case granted:
		return a.grant(ctx, ka, false)
	case kindClash:
		return nil, before.kindError(a.info)
	}
	return nil, driver.ErrHeld
}

// isAbsent returns the condition that the attempt's key does not exist.
func (a *attempt) isAbsent() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(a.key), "=", 0)}
}

// putOp returns the operation that puts the key.
func (a *attempt) putOp(held bool) clientv3.Op {
	return clientv3.OpPut(a.key, a.info.encode(held), clientv3.WithLease(a.s.id))
}

// sendPut puts the key if conditions hold, and otherwise executes other operations. Further
// operations follow the put.
func (a *attempt) sendPut(
	ctx context.Context, iff []clientv3.Cmp, put clientv3.Op, otherwise []clientv3.Op, then ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	maybePut := a.maybePut
	a.maybePut = true
	answer, err := a.d.commit(ctx, iff, append([]clientv3.Op{put}, then...), otherwise)
	if err != nil {
		a.mayPutLater = a.mayPutLater || !isLeaseGone(err)
		return nil, err
	}
	a.unreachableSince, a.lastErr = time.Time{}, nil
	a.maybePut = maybePut || answer.Succeeded
	return answer, checkRevision(answer.Header.Revision)
}

// wait waits in the queue until the lock is granted.
func (a *attempt) wait(ctx context.Context) (*handle, error) {
	ctx, cancel := a.s.bound(ctx)
	defer cancel()
	w := &waiter{info: a.info, woken: make(chan struct{}, 1)}
	q, err := a.d.joinQueue(a.req.Name, w)
	if err != nil {
		return nil, err
	}
	defer q.leave(w)
	if err := q.awaitLive(ctx, w); err != nil {
		return nil, err
	}
	if err := a.putInQueue(ctx); err != nil {
		return nil, err
	}
	a.wasQueued = true
	a.req.NoteWait(nil)
	q.setKey(w, a.key, a.revision)
	for {
		v, err := q.judge(w)
		switch {
		case err != nil:
			return nil, err
		case v == granted:
			return a.confirmAndGrant(ctx)
		case v == gone:
			return nil, a.abandonKey()
		}
		select {
		case <-w.woken:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// putInQueue puts the key into the queue, unless it is there.
func (a *attempt) putInQueue(ctx context.Context) error {
	if a.revision > 0 {
		return nil
	}
	oneKey := readOneKey(a.req.Name)
	answer, err := a.sendPut(ctx, a.isAbsent(), a.putOp(false), []clientv3.Op{clientv3.OpGet(a.key), oneKey}, oneKey)
	if err != nil {
		return err
	}
	err = checkOneKey(answer.Responses[1])
	switch {
	case err != nil:
		return err
	case answer.Succeeded:
		a.revision = answer.Header.Revision
	default:
		a.revision = answer.Responses[0].GetResponseRange().Kvs[0].CreateRevision
	}
	return nil
}

// confirmAndGrant takes the lock that the watch shows as granted, if a majority of etcd still
// has the key. The watch may be behind: the etcd lease may have ended meanwhile, and the key
// with it.
func (a *attempt) confirmAndGrant(ctx context.Context) (*handle, error) {
	ka := a.s.requestKeepAlive() // it is sent at the same time
	if err := a.checkKey(ctx); err != nil {
		return nil, err
	}
	return a.grant(ctx, ka, false)
}

// checkKey asks a majority whether the attempt's key exists, and abandons a key that does not.
func (a *attempt) checkKey(ctx context.Context) error {
	err := a.d.checkExists(ctx, a.key, a.revision)
	if errors.Is(err, driver.ErrLost) {
		return a.abandonKey()
	}
	return err
}

// abandonKey drops a key that no longer exists, so that the next round uses another one.
func (a *attempt) abandonKey() error {
	if a.mayPutLater {
		a.s.addCleanup(a.key)
	}
	a.key = ""
	return errRestart
}

// checkExists asks a majority whether a key exists. If not, the error matches ErrLost.
func (d *Driver) checkExists(ctx context.Context, key string, revision int64) error {
	answer, err := call(ctx, d, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.client.Get(ctx, key, clientv3.WithKeysOnly())
	})
	if err != nil {
		return err
	}
	if len(answer.Kvs) == 0 || answer.Kvs[0].CreateRevision != revision {
		return errKeyGone
	}
	return nil
}

// maxCheckAge is how long ago a majority may have had the key when its lease begins.
const maxCheckAge = 20 * time.Millisecond

// grant makes a lease of the key, which holds the lock, as a majority has just answered. If the
// keep-alive takes longer than that answer, grant asks again: meanwhile somebody may have broken
// the lock, and others may have held it.
func (a *attempt) grant(ctx context.Context, ka *keepAlive, infoRecorded bool) (*handle, error) {
	checkedAt := driver.Now()
	start, err := ka.wait(ctx)
	if err != nil {
		return nil, err
	}
	if driver.Now().Sub(checkedAt) > maxCheckAge {
		if err := a.checkKey(ctx); err != nil {
			return nil, err
		}
	}
	l := &lease{
		d: a.d, s: a.s, name: a.req.Name, info: a.info, minHold: a.req.MinHold, key: a.key, nonce: a.nonce, revision: a.revision,
		blockSize: blockSizeOf(a.req), since: driver.Now(), infoRecorded: infoRecorded, mayReappear: a.mayPutLater,
	}
	if infoRecorded {
		l.info.Held = l.info.Asked
	}
	if l.minHold > 0 {
		if err := l.recordMinHold(ctx); errors.Is(err, driver.ErrLost) {
			return nil, a.abandonKey()
		} else if err != nil {
			return nil, err
		}
	}
	if l.tellsWanted() {
		a.d.observeWaiters(l)
	}
	if err := a.s.register(l); err != nil {
		l.stopObserving()
		return nil, err
	}
	a.d.leases.add(l)
	return l.newHandle(a.req, start), nil
}

// cleanUp deletes the attempt's key. It does not depend on the context of Acquire, and returns
// soon even if etcd does not answer. If the driver is closed, the key goes with the session.
func (a *attempt) cleanUp() {
	if a.key == "" || a.d.life.Over() {
		return
	}
	if !a.maybePut {
		a.deleteKey()
		return
	}
	done := make(chan struct{})
	if !a.d.life.Go(func() { defer close(done); a.deleteKey() }) {
		return
	}
	timer := time.NewTimer(cleanupTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// deleteKey deletes the key, if it may exist.
func (a *attempt) deleteKey() {
	if a.maybePut {
		ctx, cancel := context.WithTimeout(a.d.life.Context(), callTimeout)
		defer cancel()
		if _, err := a.d.client.Delete(ctx, a.key); err != nil || a.mayPutLater {
			a.s.addCleanup(a.key)
			return
		}
	}
	if a.nonce != "" {
		a.d.nonces.giveBack(a.nonce)
	}
}
