package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// batch is how many keys one transaction checks or deletes at most. By default etcd allows 128
// operations, and counts nested ones too.
const batch = 100

// inBatches calls do with all items, at most batch at a time, until it fails for a reason that is
// none of the keys, such as no answer. It halves a batch with more keys than the server allows in a
// transaction, or with a key that a role may not use.
func inBatches[T any](items []T, do func([]T) error) error {
	for some := range slices.Chunk(items, batch) {
		err, half := do(some), len(some)/2
		if half > 0 && isOfBatch(err) {
			if err = inBatches(some[:half], do); err == nil {
				err = inBatches(some[half:], do)
			}
		}
		if err != nil && !isPermanent(err) {
			return err
		}
	}
	return nil
}

// isOfBatch reports whether err may say nothing about most keys of a batch.
func isOfBatch(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// A lease is a key that holds a lock, as far as we know. It is attached to the etcd lease of its
// session.
type lease struct {
	d           *Driver
	s           *session
	req         driver.Request
	info        info // the value of the key; changed with mu held
	key         string
	nonce       string // part of the key
	revision    int64
	grant       driver.Grant
	since       driver.Instant // the grant, or a little later
	mayReappear bool           // an abandoned request may put the key again
	releaseSem  chan struct{}  // of capacity 1: held during a release

	queue   *watchedQueue // tells the lease of waiters; nil if it does not
	watchID int64         // see keyWatches; 0 for none; guarded by session.mu

	writeSem   chan struct{} // of capacity 1: held during a change of the value, so that the last one is the newest
	unrecorded atomic.Bool   // the lease was waited for, and its key does not say since when it is held

	mu                sync.Mutex
	releaseUnanswered bool // a release was not answered; guarded by releaseSem
	ended             bool
	releaseErr        error // the result of Release; does not change once the lease has ended
}

// findLease returns the lease of a name that has a token, or nil.
func (d *Driver) findLease(name string, token uint64) *lease {
	s := d.session.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.leases {
		if l.req.Name == name && l.hasToken(token) {
			return l
		}
	}
	return nil
}

// IsOwner returns a comparison for a transaction of etcd. It succeeds as long as the hold with
// this token lives: the transaction writes its data under the lock or not at all, whatever the
// clocks do.
//
//	answer, err := client.Txn(ctx).If(d.IsOwner(lock.Name(), lock.Token())).Then(puts...).Commit()
//	// !answer.Succeeded: the lock was lost
//
// Holds that are handed over within a process share one key, and IsOwner does not tell them
// apart: it does not stop a goroutine that still writes after its own release. For a hold that
// this driver does not have, the comparison never succeeds.
func (d *Driver) IsOwner(name string, token uint64) clientv3.Cmp {
	l := d.findLease(name, token)
	if l == nil {
		return clientv3.Compare(clientv3.CreateRevision(prefixOf(name)), "<", 0)
	}
	return isCreatedAt(l.key, l.revision)[0]
}

// hasToken reports whether a token belongs to the lease.
func (l *lease) hasToken(token uint64) bool {
	return l.grant.Token <= token && token-l.grant.Token < uint64(l.grant.Tokens)
}

// Lease returns the lease with the given id on a lock. Only what [Driver.Acquire] has returned can
// be used: the methods of other leases, and Renew, return [errors.ErrUnsupported].
func (d *Driver) Lease(_, id string, _ time.Duration) driver.Lease { return driverkit.RemoteLease(id) }

// signalWanted tells the holder that another process waits.
func (l *lease) signalWanted() {
	if l.req.OnWanted != nil {
		l.req.OnWanted()
	}
}

// ID implements [driver.Lease].
func (l *lease) ID() string { return l.req.ID }

// Grant implements [driver.Lease]. Its TTL is that of the session.
func (l *lease) Grant() driver.Grant { return l.grant }

// SetHolder implements [driver.Lease].
func (l *lease) SetHolder(ctx context.Context, to driver.Holder) error {
	if err := cmp.Or(l.d.life.Ready(ctx), l.endError()); err != nil {
		return err
	}
	ctx, cancel := l.d.life.During(ctx)
	defer cancel()
	return l.writeInfo(ctx, &to)
}

// recordSince writes into the keys of leases that were waited for, for people, since when they are
// held: nobody could write that before the grant. It writes them in the background, one after the
// other. After an outage, the next renewal tries again.
func (d *Driver) recordSince(renewed []*lease) {
	waited := slices.DeleteFunc(renewed, func(l *lease) bool { return !l.unrecorded.Swap(false) })
	if len(waited) == 0 {
		return
	}
	d.life.Go(func() {
		for _, l := range waited {
			err := l.writeInfo(d.life.Context(), nil)
			l.unrecorded.Store(errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, rpctypes.ErrNoSpace))
		}
	})
}

// writeInfo writes what the key says of its holder, after a change of it to another one unless
// that is nil.
func (l *lease) writeInfo(ctx context.Context, to *driver.Holder) error {
	select {
	case l.writeSem <- struct{}{}:
		defer func() { <-l.writeSem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	if to != nil {
		l.info.Host, l.info.PID, l.info.Label, l.info.Kind = to.Host, to.PID, to.Label, to.Kind
	}
	put := clientv3.OpPut(l.key, l.info.encode(), clientv3.WithIgnoreLease())
	l.mu.Unlock()
	// A key that a release has attached to another etcd lease stays as the release wrote it.
	held := append(isCreatedAt(l.key, l.revision), clientv3.Compare(clientv3.LeaseValue(l.key), "=", l.s.id))
	answer, err := l.d.commit(ctx, held, []clientv3.Op{put}, nil)
	switch {
	case err != nil:
		return explain(err)
	case !answer.Succeeded:
		l.s.onKeyDeleted(l)
		return errKeyGone
	}
	return nil
}

// lose ends the lease because etcd or the session said so.
func (l *lease) lose(why error) {
	if !errors.Is(why, driver.ErrLost) {
		why = fmt.Errorf("%w: %w", driver.ErrLost, why)
	}
	l.end(driver.ErrLost, why)
	if l.mayReappear {
		l.scheduleCleanup()
	}
}

// end ends the lease, unless it had ended before. It tells the holder why, unless that is nil,
// before the lease is forgotten: see renewAll.
func (l *lease) end(result, why error) {
	l.mu.Lock()
	if !l.ended {
		l.ended, l.releaseErr = true, result
		if why != nil && l.req.OnLost != nil {
			l.req.OnLost(why)
		}
	}
	l.mu.Unlock()
	l.detach()
}

// detach removes the lease from its session and its queue.
func (l *lease) detach() {
	l.stopObserving()
	l.s.unregister(l)
}

// endError returns ErrLost if the lease has ended, as far as we know.
func (l *lease) endError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return driver.ErrLost
	}
	return nil
}

// Release implements [driver.Lease]. It retries while ctx lives. If it fails, the key is deleted
// later, because it would not expire while the session lives.
func (l *lease) Release(ctx context.Context) error {
	l.detach() // nothing will be handed over any more
	select {
	case l.releaseSem <- struct{}{}: // even if ctx is done: the cleanup below must be scheduled
	default:
		select {
		case l.releaseSem <- struct{}{}:
		case <-ctx.Done(): // the other call deletes the key, now or later
			return context.Cause(ctx)
		}
	}
	defer func() { <-l.releaseSem }()
	for {
		if l.endError() != nil {
			return l.releaseErr
		}
		err := l.tryRelease(ctx)
		if err == nil || driverkit.SaysLost(ctx, err) {
			l.end(err, nil)
			switch {
			case l.mayReappear:
				l.scheduleCleanup()
			// The key is gone for good.
			case err == nil && !l.releaseUnanswered && l.req.MinHold == 0:
				l.d.nonces.giveBack(l.nonce)
			}
			continue
		}
		if ctx.Err() == nil && isTransient(err) {
			select {
			case <-time.After(retryDelay):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		l.scheduleCleanup()
		return explain(err)
	}
}

// scheduleCleanup has the key deleted once more, when MinHold is over.
func (l *lease) scheduleCleanup() { time.AfterFunc(l.minLeft(), func() { l.s.addCleanup(l.key) }) }

// minLeft returns for how long MinHold still keeps the lock taken.
func (l *lease) minLeft() time.Duration { return max(0, l.req.MinHold-driver.Now().SubMono(l.since)) }

// tryRelease asks etcd once to end the lease.
func (l *lease) tryRelease(ctx context.Context) error {
	if err := l.beginMinHold(ctx); err != nil {
		return err
	}
	wasHeld, err := l.deleteOrKeep(ctx)
	switch {
	case err != nil:
		l.releaseUnanswered = true
		return err
	case !wasHeld && !l.releaseUnanswered:
		return errKeyGone
	case l.info.MinHold != 0:
		// The etcd lease lasts whole seconds, at least two. We end it in time.
		time.AfterFunc(l.minLeft(), func() { l.d.life.Go(func() { l.d.revoke(clientv3.LeaseID(l.info.MinHold)) }) })
	}
	return nil
}

// beginMinHold grants, once, the etcd lease that keeps the key for what is left of MinHold.
func (l *lease) beginMinHold(ctx context.Context) error {
	left := l.minLeft()
	if left == 0 || l.info.MinHold != 0 {
		return nil
	}
	granted, err := call(ctx, l.d, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return l.d.client.Grant(ctx, int64((left+time.Second-1)/time.Second))
	})
	if err == nil {
		l.mu.Lock()
		l.info.MinHold = int64(granted.ID)
		l.mu.Unlock()
	}
	return err
}

// deleteOrKeep deletes the key, or attaches it to the etcd lease that keeps it for MinHold. It
// reports whether the key existed.
func (l *lease) deleteOrKeep(ctx context.Context) (existed bool, err error) {
	exists := isCreatedAt(l.key, l.revision)
	if l.minLeft() > 0 {
		l.mu.Lock()
		put := clientv3.OpPut(l.key, l.info.encode(), clientv3.WithLease(clientv3.LeaseID(l.info.MinHold)))
		l.mu.Unlock()
		answer, err := l.d.commit(ctx, exists, []clientv3.Op{put}, nil)
		if !isLeaseGone(err) { // else MinHold is over
			return err == nil && answer.Succeeded, err
		}
	}
	return l.d.deleteKey(ctx, l.key, l.revision)
}

// deleteKey deletes the key that was created at a revision. It reports whether the key existed.
func (d *Driver) deleteKey(ctx context.Context, key string, revision int64) (existed bool, err error) {
	answer, err := d.commit(ctx, isCreatedAt(key, revision), []clientv3.Op{clientv3.OpDelete(key)}, nil)
	return err == nil && answer.Succeeded, err
}

// Renew implements [driver.Driver]. It sends one keep-alive for all leases, and at the same time
// asks etcd whether their keys exist.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	if len(due) == 0 {
		return []driver.Renewal{d.renewAll(ctx)}
	}
	answers := make([]driver.Renewal, len(due))
	var leases []*lease
	for i, one := range due {
		l, ok := one.(*lease)
		if !ok {
			answers[i].Err = driverkit.RemoteError()
			continue
		}
		if answers[i].Err = cmp.Or(l.endError(), context.Cause(ctx)); answers[i].Err == nil {
			leases = append(leases, l)
		}
	}
	if len(leases) == 0 {
		return answers
	}
	ka := d.session.Load().requestKeepAlive(renewalAge) // the leases of an earlier session are lost
	failed := d.checkKeys(ctx, leases)
	start, err := ka.wait(ctx)
	var renewed []*lease
	for i, one := range due {
		l, ok := one.(*lease)
		if !ok {
			continue
		}
		if answers[i].Err = explain(cmp.Or(answers[i].Err, failed[l], l.s.err(), err)); answers[i].Err == nil {
			answers[i].Start = start
			renewed = append(renewed, l)
		}
		if driverkit.SaysLost(ctx, answers[i].Err) {
			l.s.onKeyDeleted(l)
		}
	}
	d.recordSince(renewed)
	return answers
}

// renewAll renews all leases. It tells those that have ended of their loss.
func (d *Driver) renewAll(ctx context.Context) driver.Renewal {
	s := d.session.Load()
	if s == nil {
		return driver.Renewal{Err: errors.New("no lease was granted yet")}
	}
	ka, leases := s.requestKeepAlive(renewalAge), s.allLeases()
	checkErr := s.checkLeases(ctx, leases)
	start, err := ka.wait(ctx)
	if over := s.err(); over != nil { // its leases are told, and those of the next one wait for the next call
		err = fmt.Errorf("a session has ended: %v", over) //nolint:errorlint // it may match ErrLost
	}
	if err := cmp.Or(checkErr, err); err != nil {
		return driver.Renewal{Err: explain(err)}
	}
	d.recordSince(leases)
	return driver.Renewal{Start: start}
}

// checkKeys asks a majority whether the keys of leases exist, and returns the errors. It only
// reads, which etcd also does while its space is used up.
func (d *Driver) checkKeys(ctx context.Context, leases []*lease) map[*lease]error {
	failed, asked := map[*lease]error{}, map[*lease]bool{}
	outage := inBatches(leases, func(some []*lease) error {
		ops := make([]clientv3.Op, len(some))
		for i, l := range some {
			ops[i] = clientv3.OpGet(l.key, clientv3.WithKeysOnly())
		}
		answer, err := d.commit(ctx, nil, ops, nil)
		for i, l := range some {
			asked[l] = len(some) == 1 || !isOfBatch(err)
			delete(failed, l) // of a larger batch
			if err != nil {
				failed[l] = err
			} else if kvs := answer.Responses[i].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].CreateRevision != l.revision {
				failed[l] = errKeyGone
			}
		}
		return err
	})
	for _, l := range leases {
		if outage != nil && !asked[l] {
			failed[l] = outage
		}
	}
	return failed
}
