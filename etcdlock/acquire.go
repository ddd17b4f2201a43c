package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
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
	if req.OnWanted != nil { // a grant may fail after the call, and another one may follow
		req.OnWanted = sync.OnceFunc(req.OnWanted)
	}
	a := &attempt{d: d, req: req, info: newInfo(req)}
	h, err := a.acquire(ctx)
	if err == nil && ctx.Err() == nil {
		return h, nil
	}
	if h != nil { // the grant came too late
		h.detach()
	}
	a.cleanUp()
	if ctx.Err() != nil {
		err = a.contextError(context.Cause(ctx))
	}
	return nil, explain(err)
}

// acquire tries until the lock is granted, the error is final, or the time for retries is over.
func (a *attempt) acquire(ctx context.Context) (*lease, error) {
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
		soon, cancel := context.WithTimeout(context.Background(), cleanupTimeout/3)
		defer cancel()
		lastErr = a.d.diagnoseNoAnswer(soon) // the client knows why the last attempt to connect failed
	}
	switch {
	case lastErr != nil:
		lastErr = fmt.Errorf("%w: %w", driver.ErrUnavailable, lastErr)
	case !a.wasQueued: // nobody is known to hold the lock
		lastErr = fmt.Errorf("%w: no answer", driver.ErrUnavailable)
	}
	return driverkit.EndOfWait(cause, lastErr)
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
func (a *attempt) tryRound(ctx context.Context) (*lease, error) {
	s, err := a.d.openSession(ctx)
	if err != nil {
		return nil, err
	}
	if a.key == "" || a.s != s {
		a.s, a.nonce = s, a.d.nonces.take()
		a.key = keyOf(a.req.Name, int64(s.id), a.nonce)
		a.revision, a.maybePut, a.mayPutLater = 0, false, false
	}
	if a.req.NoWait {
		if err := a.precheck(ctx); err != nil {
			return nil, err
		}
	}
	ka := a.requestKeepAlive() // it is sent at the same time as the key
	switch v, err := a.put(ctx); {
	case err != nil:
		return nil, err
	case v == granted:
		return a.grant(ctx, ka)
	case a.req.NoWait:
		return nil, driver.ErrHeld
	}
	a.wasQueued = true
	a.req.NoteWait(nil)
	return a.wait(ctx)
}

// readOps returns the operations that read the queue, for judge.
func (a *attempt) readOps() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(prefixOf(a.req.Name), clientv3.WithPrefix()), readOneKey(a.req.Name)}
}

// judge returns the verdict on the attempt, given the answers to readOps, and the attempt's key in
// the queue. Without a key, the attempt would be the last.
func (a *attempt) judge(answers []*etcdserverpb.ResponseOp) (v verdict, own *entry, err error) {
	if err := checkOneKey(answers[1]); err != nil {
		return waits, nil, err
	}
	q := parseQueue(a.req.Name, answers[0].GetResponseRange().Kvs)
	if i := q.find(a.key); i >= 0 {
		q, own = q[:i], &q[i]
	}
	v, err = q.judge(a.info)
	return v, own, err
}

// precheck returns an error if there is no point in putting the key.
func (a *attempt) precheck(ctx context.Context) error {
	answer, err := a.d.commit(ctx, nil, a.readOps(), nil)
	if err != nil {
		return err
	}
	a.unreachableSince, a.lastErr = time.Time{}, nil
	v, _, err := a.judge(answer.Responses)
	if err == nil && v != granted {
		err = driver.ErrHeld
	}
	return err
}

// put takes the lock if it has no keys, which needs no read. Otherwise put puts the key at the end
// of the queue, unless it is there, and returns the verdict on it.
func (a *attempt) put(ctx context.Context) (verdict, error) {
	free := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(prefixOf(a.req.Name)), "=", 0).WithPrefix(), oneKeyHasNoLease(a.req.Name),
	}
	enqueue := clientv3.OpTxn(isCreatedAt(a.key, 0), []clientv3.Op{a.putOp(false)}, nil)
	answer, err := a.d.commit(ctx, free, []clientv3.Op{a.putOp(true)}, append([]clientv3.Op{enqueue}, a.readOps()...))
	a.maybePut = a.maybePut || !isPermanent(err)
	if err != nil {
		a.mayPutLater = a.mayPutLater || !isLeaseGone(err) && !isPermanent(err)
		return waits, err
	}
	a.unreachableSince, a.lastErr = time.Time{}, nil
	if answer.Succeeded {
		a.revision = answer.Header.Revision
		return granted, nil
	}
	v, own, err := a.judge(answer.Responses[1:])
	if own != nil {
		a.revision = own.revision
	}
	return v, err
}

// putOp returns the operation that puts the key. granted says that it holds the lock at once.
func (a *attempt) putOp(granted bool) clientv3.Op {
	value := a.info
	if granted {
		value.Held = value.Asked
	}
	return clientv3.OpPut(a.key, value.encode(), clientv3.WithLease(a.s.id))
}

// wait waits until the lock is granted.
func (a *attempt) wait(ctx context.Context) (*lease, error) {
	ctx, cancel := a.s.bound(ctx)
	defer cancel()
	w := &waiter{info: a.info, key: a.key, revision: a.revision, woken: make(chan struct{}, 1)}
	q, err := a.d.joinQueue(a.req.Name, w)
	if err != nil {
		return nil, err
	}
	defer q.leave(w)
	for {
		v, err := q.judge(w)
		switch {
		case err != nil:
			return nil, err
		case v == granted:
			ka := a.requestKeepAlive() // it is sent at the same time
			// The watch may be behind: the etcd lease may have ended meanwhile, and the key with it.
			if err := a.checkKey(ctx); err != nil {
				return nil, err
			}
			return a.grant(ctx, ka)
		case v == gone:
			return nil, a.abandonKey()
		}
		select {
		case <-w.woken:
		case <-ctx.Done():
			a.lastErr = q.outage()
			return nil, context.Cause(ctx)
		}
	}
}

// checkKey asks a majority whether the attempt's key exists, and abandons a key that does not.
func (a *attempt) checkKey(ctx context.Context) error {
	answer, err := call(ctx, a.d, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return a.d.client.Get(ctx, a.key, clientv3.WithKeysOnly())
	})
	switch {
	case err != nil:
		return err
	case len(answer.Kvs) == 0, answer.Kvs[0].CreateRevision != a.revision:
		return a.abandonKey()
	}
	return nil
}

// abandonKey drops a key that no longer exists, so that the next round uses another one.
func (a *attempt) abandonKey() error {
	if a.mayPutLater {
		a.s.addCleanup(a.key)
	}
	a.key = ""
	return errRestart
}

// requestKeepAlive requests the keep-alive from which the lease will count.
func (a *attempt) requestKeepAlive() *keepAlive {
	if a.req.Tokens > 1 {
		return a.s.requestKeepAlive(renewalAge)
	}
	return a.s.requestKeepAlive(a.s.ttl / grantAge)
}

// maxCheckAge is how long ago a majority may have had the key when its lease begins.
const maxCheckAge = 20 * time.Millisecond

// grant makes a lease of the key, which holds the lock, as a majority has just answered. If the
// keep-alive takes longer than that answer, grant asks again: meanwhile somebody may have broken
// the lock, and others may have held it.
func (a *attempt) grant(ctx context.Context, ka *keepAlive) (*lease, error) {
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
	block := a.req.TokenBlock()
	l := &lease{
		d: a.d, s: a.s, req: a.req, info: a.info, key: a.key, nonce: a.nonce, revision: a.revision,
		grant: driver.Grant{
			Token: tokenOf(a.revision), Tokens: block, Start: start, TTL: a.s.ttl,
			TellsWanted: block > 1, // a lease with one token can't be handed over, so it does not need to know
		},
		since: driver.Now(), mayReappear: a.mayPutLater,
		releaseSem: make(chan struct{}, 1), writeSem: make(chan struct{}, 1),
	}
	l.info.Held = time.Now().UnixMilli()
	l.unrecorded.Store(a.wasQueued)
	if l.grant.TellsWanted {
		a.d.observeWaiters(l)
	}
	if err := a.s.register(l); err != nil {
		l.detach()
		return nil, err
	}
	return l, nil
}

// cleanUp deletes the attempt's key. It does not depend on the context of Acquire, and returns
// soon even if etcd does not answer. If the driver is closed, the key goes with the session.
func (a *attempt) cleanUp() {
	if a.key == "" || a.d.life.Over() {
		return
	}
	done := make(chan struct{})
	if !a.d.life.Go(func() { defer close(done); a.deleteKey() }) {
		return
	}
	select {
	case <-done:
	case <-time.After(cleanupTimeout):
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
	a.d.nonces.giveBack(a.nonce)
}
