package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A lease is a node that holds the lock.
type lease struct {
	s          *session
	req        driver.Request // its label is guarded by mu
	folder     string
	path       string
	zxid       int64          // of the transaction that created the node
	grant      driver.Grant   // from its Start, the session is certain to live for leaseTTL
	grantedAt  driver.Instant // when the node was seen to be first: at the grant or later
	releaseSem chan struct{}  // of capacity 1: held during a release
	done       chan struct{}  // closed when the lease has ended
	watchTimer *time.Timer    // has its node watched

	mu             sync.Mutex
	state          state
	watched        *watchEvent // reports the end of its node, until it fires; nil for none
	pendingCleanup *orphan     // its node, after a release that was not answered
}

// minWatchAge is how old a lease is when its node is watched, so that shorter holds cost no request
// for that.
const minWatchAge = 20 * time.Millisecond

// A state says whether a lease lives, and how it ended if not.
type state uint8

const (
	held state = iota
	released
	lost
)

// Lease returns the lease with the given id on a lock. Only what [Driver.Acquire] has returned can
// be used: the methods of other leases, and Renew, return [errors.ErrUnsupported].
func (d *Driver) Lease(_, id string, _ time.Duration) driver.Lease { return driverkit.RemoteLease(id) }

// register records a lease that was confirmed on the connection connSeq. From then on it is
// lost with that connection.
func (s *session) register(l *lease, connSeq int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if !s.isUp() || s.connSeq != connSeq {
		return errDisconnected
	}
	l.watchTimer = time.AfterFunc(minWatchAge, func() { s.d.life.Go(l.watchUnlessWatched) })
	s.d.leasesMu.Lock()
	defer s.d.leasesMu.Unlock()
	s.d.leases[l.path] = l
	return nil
}

// ID implements [driver.Lease].
func (l *lease) ID() string { return l.req.ID }

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// ended reports whether the lease has ended.
func (l *lease) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != held
}

// end ends the lease. It reports false if it had ended before. If the lease is lost, it tells the
// holder why, before the lease is forgotten: see renewAll.
func (l *lease) end(to state, why error) bool {
	l.mu.Lock()
	if l.state != held {
		l.mu.Unlock()
		return false
	}
	l.state = to
	if to == lost && l.req.OnLost != nil {
		l.req.OnLost(why)
	}
	l.mu.Unlock()
	l.watchTimer.Stop()
	close(l.done)
	d := l.s.d
	d.leasesMu.Lock()
	defer d.leasesMu.Unlock()
	delete(d.leases, l.path)
	return true
}

// lose ends the lease, after the store has ended it or its time is over by our clock. If its node
// still exists, it keeps others out until due. Then the sweeper deletes it.
func (l *lease) lose(why error, due driver.Instant) {
	if l.end(lost, why) {
		l.deleteLater(due)
	}
}

// deleteLater has the sweeper delete the node when it is due.
func (l *lease) deleteLater(due driver.Instant) *orphan {
	o := &orphan{folder: l.folder, path: l.path, due: due}
	l.s.addOrphan(o)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pendingCleanup = o
	return o
}

// SetHolder implements [driver.Lease].
func (l *lease) SetHolder(ctx context.Context, to driver.Holder) error {
	l.mu.Lock()
	l.req.Holder = to
	l.mu.Unlock()
	if l.ended() {
		return driver.ErrLost
	}
	_, _, err := do(ctx, l.s, setNode(l.path, l.info().encode()))
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, errSessionOver) {
		return driver.ErrLost
	}
	return l.s.d.explain(err, l.folder)
}

// info returns the data of the node.
func (l *lease) info() info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return newInfo(l.req)
}

// Release implements [driver.Lease]. If ctx is already done, it ends the lease all the same: the
// session lives on, so the node would keep the lock taken.
func (l *lease) Release(ctx context.Context) error {
	select {
	case l.releaseSem <- struct{}{}:
	default:
		select {
		case l.releaseSem <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx) // the other call ends the lease
		}
	}
	defer func() { <-l.releaseSem }()
	if l.end(released, nil) {
		return l.release(ctx)
	}
	l.mu.Lock()
	state, pending := l.state, l.pendingCleanup
	l.mu.Unlock()
	if state == lost {
		return driver.ErrLost
	}
	if pending == nil {
		return nil
	}
	return l.awaitDeletion(ctx, pending) // an earlier call got no answer
}

// awaitDeletion returns nil when the node no longer exists. If the session ends before, that is
// certain only if the servers have ended it: a LockDelay may keep another one for some time.
func (l *lease) awaitDeletion(ctx context.Context, o *orphan) (err error) {
	select {
	case <-o.deleted:
	case <-l.s.ctx.Done():
		err = l.withLoss(context.Cause(l.s.ctx))
		if errors.Is(err, errSessionOver) && !errors.Is(err, driver.ErrLost) {
			return nil
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select {
	case <-o.deleted: // perhaps at the same time
		return nil
	default:
		return err
	}
}

// withLoss adds ErrLost to the error of a release if the servers may have ended the session before
// the release began: with [KeepSuspended] they may, without a word, while there was no connection.
func (l *lease) withLoss(err error) error {
	if l.s.d.conf.keepSuspended && errors.Is(err, errSessionOver) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}

// release deletes the node, or keeps it until MinHold is over.
func (l *lease) release(ctx context.Context) error {
	left := l.req.MinHold - driver.Now().SubMono(l.grantedAt)
	due := driver.Now().Add(max(0, left))
	var err error
	if left > 0 {
		err = l.keepForMinHold(ctx, left)
	} else {
		err = l.s.deleteHold(ctx, l.path)
	}
	switch err = l.withLoss(err); {
	case err == nil:
		return nil
	case driverkit.SaysLost(ctx, err):
		l.mu.Lock()
		defer l.mu.Unlock()
		l.state = lost
		return err
	}
	o := l.deleteLater(due) // as long as the session lives, MinHold keeps the lock taken
	if left > 0 || isAnswer(err) && ctx.Err() == nil {
		return err
	}
	return l.awaitDeletion(ctx, o) // the sweeper finds out whether the node was deleted
}

// notifyNextWaiter tells the first waiter of a semaphore that it is the first now. That waiter may
// watch this node, so notifyNextWaiter changes the node's data. Waiters that arrive later see that
// they are first. If the change gets lost, the waiter notices after recheckAfter.
func (l *lease) notifyNextWaiter() { startCall(l.s, setNode(l.path, l.info().encode())) }

// Renew implements [driver.Driver]. It asks the leader once for all leases. The leader answers
// if the session lives. When the answer arrives, all earlier changes of watched nodes have been
// reported, such as the deletion of one. So each node needs a watch: Renew sets those that are
// missing.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	if len(due) == 0 {
		return []driver.Renewal{d.renewAll(ctx)}
	}
	s := d.latestSession()
	var leases []*lease // those of an earlier session are lost
	for _, one := range due {
		if l, ok := one.(*lease); ok && l.s == s && !l.ended() {
			leases = append(leases, l)
		}
	}
	answer := driver.Renewal{Err: d.life.Ready(ctx)}
	if answer.Err == nil && len(leases) > 0 {
		answer = s.renew(ctx, leases)
	}
	answers := slices.Repeat([]driver.Renewal{answer}, len(due))
	for i, one := range due {
		if l, ok := one.(*lease); !ok {
			answers[i] = driver.Renewal{Err: driverkit.RemoteError()}
		} else if l.s != s || l.ended() || errors.Is(answer.Err, errSessionOver) {
			answers[i] = driver.Renewal{Err: driver.ErrLost}
		}
	}
	return answers
}

// renewAll renews all leases. Those whose session is over are lost.
func (d *Driver) renewAll(ctx context.Context) driver.Renewal {
	if err := d.life.Ready(ctx); err != nil {
		return driver.Renewal{Err: err}
	}
	s := d.latestSession()
	if s == nil {
		return driver.Renewal{Err: errors.New("no lease was granted yet")}
	}
	answer := s.renew(ctx, s.heldLeases())
	for _, l := range d.allLeases() {
		if cause := context.Cause(l.s.ctx); cause != nil {
			l.loseWithSession(cause)
		}
	}
	if errors.Is(answer.Err, errSessionOver) {
		answer.Err = fmt.Errorf("the session has ended: %v", answer.Err) //nolint:errorlint // it may match ErrLost
	}
	return answer
}

func (d *Driver) allLeases() []*lease {
	d.leasesMu.Lock()
	defer d.leasesMu.Unlock()
	return slices.Collect(maps.Values(d.leases))
}

// renew confirms the session, and makes sure that all leases are watched when the answer
// arrives. If a watch has fired by then, later changes of that node were not reported, so renew
// starts over.
func (s *session) renew(ctx context.Context, leases []*lease) driver.Renewal {
	for {
		if s.ctx.Err() != nil {
			return driver.Renewal{Err: errSessionOver}
		}
		unwatched := slices.DeleteFunc(slices.Clone(leases), func(l *lease) bool { return !l.needsWatch() })
		awaitWatches := inParallel(unwatched, func(_ int, l *lease) error { return l.watch(ctx) })
		start, err := s.confirm(ctx)
		switch err = cmp.Or(err, awaitWatches()); {
		case err != nil:
			return driver.Renewal{Err: s.d.explain(err, s.d.conf.root)}
		case !slices.ContainsFunc(leases, (*lease).needsWatch):
			return driver.Renewal{Start: start}
		}
	}
}

// needsWatch reports whether the lease lives, as far as we know, and the connection would not
// report the end of its node.
func (l *lease) needsWatch() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == held && (l.watched == nil || l.watched.fired())
}

// watch makes sure that the connection reports the end of the node.
func (l *lease) watch(ctx context.Context) error {
	ev, snap, err := l.s.watch(ctx, watchKey{path: l.path})
	switch {
	case errors.Is(err, errNodeGone), err == nil && snap.stat.Czxid != l.zxid:
		l.lose(driver.ErrLost, driver.Instant{})
		return nil
	case err != nil:
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = ev
	return nil
}

// watchUnlessWatched makes sure that the connection reports the end of the node. If it fails, the
// next renewal tries again.
func (l *lease) watchUnlessWatched() {
	if l.needsWatch() {
		_ = l.watch(l.s.ctx) // see above
	}
}

// hasToken reports whether a token belongs to the lease.
func (l *lease) hasToken(token uint64) bool {
	return l.grant.Token <= token && token-l.grant.Token < uint64(l.grant.Tokens)
}

// IsOwner returns a check for a multi of ZooKeeper. The check succeeds as long as the hold with
// this token lives: the multi writes its nodes under the lock or not at all, whatever the
// clocks do. The multi must go to the same ensemble, over a connection without a chroot.
//
//	_, err := conn.Multi(d.IsOwner(lock.Name(), lock.Token()), &zk.SetDataRequest{Path: "/account", Data: data, Version: -1})
//	// zk.ErrNoNode: the lock was lost
//
// Holds that the goroutines of a process hand over among themselves have one node, so to the check
// they are one hold. For a hold that this driver does not have, the check never succeeds.
func (d *Driver) IsOwner(name string, token uint64) *zk.CheckVersionRequest {
	const anyVersion = -1
	d.leasesMu.Lock()
	defer d.leasesMu.Unlock()
	for _, l := range d.leases {
		if l.req.Name == name && l.hasToken(token) {
			return &zk.CheckVersionRequest{Path: l.path, Version: anyVersion}
		}
	}
	return &zk.CheckVersionRequest{Path: child(d.conf.folder(name), "not held"), Version: anyVersion}
}
