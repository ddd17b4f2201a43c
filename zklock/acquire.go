package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// cleanupTimeout is how long a failed acquisition waits until its node is deleted. After that the
// sweeper continues in the background.
const cleanupTimeout = driver.CancelTimeout * 3 / 5

// unansweredTimeout returns for how long an attempt that may wait goes on before it knows its place
// in the queue. Then the Locker retries. The client library notices only after two thirds of the
// session's timeout that a server hangs. Within the dial timeout it learns why there is no
// connection, so unansweredTimeout is longer than that.
func unansweredTimeout(dialTimeout time.Duration) time.Duration {
	return max(driver.AnswerTimeout, dialTimeout) + driver.AnswerTimeout/10
}

// An attempt is one call of Acquire. It has one node at a time, in one session.
type attempt struct {
	d      *Driver
	req    driver.Request
	folder string
	data   []byte
	began  time.Time

	s         *session
	id        string        // in the name of the node
	creation  *call[string] // creates the node; nil if no node was requested
	node      string        // the node's name; "" if it is not known whether the node exists
	stat      zk.Stat       // of the node; zero until the node was read
	start     driver.Instant
	createdAt driver.Instant // the node's Ctime or later

	hasFollower       bool        // another node stood behind ours at the last check
	wasQueued         bool        // the ensemble has said that the attempt has to wait
	unanswered        *time.Timer // ends an attempt that may wait, and is not told in time whether it has to
	disconnectedSince time.Time   // when the ensemble became unreachable; zero if it is reachable
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.life.Ready(ctx); err != nil {
		return nil, err
	}
	if err := d.check(req); err != nil {
		return nil, err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	a := &attempt{d: d, req: req, folder: d.conf.folder(req.Name), data: newInfo(req).encode(), began: time.Now()}
	if !req.NoWait {
		var giveUp context.CancelCauseFunc
		ctx, giveUp = context.WithCancelCause(ctx)
		defer giveUp(nil)
		a.unanswered = time.AfterFunc(unansweredTimeout(d.conf.dialTimeout), func() { giveUp(errNoAnswer) })
		defer a.unanswered.Stop()
	}
	h, err := a.acquire(ctx)
	if err == nil && ctx.Err() != nil {
		h.end(released, nil)
		err = context.Cause(ctx) // the grant came too late
	}
	if err == nil {
		return h, nil
	}
	if ctx.Err() != nil {
		err = contextError(context.Cause(ctx), err, a.wasQueued)
	}
	a.cleanUp()
	return nil, d.explain(err, a.folder)
}

// acquire tries until the lock is granted or further tries are pointless.
func (a *attempt) acquire(ctx context.Context) (*lease, error) {
	for {
		h, err := a.try(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return h, err
		case errors.Is(err, errNodeGone), errors.Is(err, zk.ErrSessionExpired) && (a.wasQueued || a.shouldRetry()):
			// Somebody has deleted our node, or the session has expired: we queue again, at the
			// end.
		case !errors.Is(err, errDisconnected) || !a.shouldRetry():
			return nil, err
		default:
			a.req.NoteWait(a.d.explain(err, a.folder))
		}
	}
}

// shouldRetry reports whether to continue without a connection. An attempt that has queued
// continues for [driver.Request.RetryLimit]: when it fails, the Locker does not retry, because it
// counts from the beginning of the wait. For an attempt that has only begun, the Locker retries.
func (a *attempt) shouldRetry() bool {
	if !a.wasQueued || a.req.NoWait {
		return time.Since(a.began) < a.d.conf.dialTimeout
	}
	if a.disconnectedSince.IsZero() {
		a.disconnectedSince = a.s.silentSince()
	}
	return time.Since(a.disconnectedSince) < a.req.RetryLimit()
}

// precheck returns an error if there is no point in creating a node. Its first read may be
// outdated, so it reads the queue again on a server that has caught up before it returns such
// an error.
func (a *attempt) precheck(ctx context.Context) error {
	for _, confirmed := range []bool{false, true} {
		if confirmed {
			if err := a.s.catchUp(ctx); err != nil {
				return err
			}
		}
		snap, _, err := do(ctx, a.s, listChildren(a.folder))
		if err != nil {
			return err
		}
		ahead := parseQueue(snap.names)
		if slices.ContainsFunc(ahead, func(c contender) bool { return c.kept }) {
			return nil // its time may be over, which only an attempt with a node can tell
		}
		err = cmp.Or(a.s.checkKind(ctx, a.folder, snap), a.s.checkFirst(ctx, a.folder, ahead))
		if err == nil {
			v, kindErr := judge(a.asContender(), ahead)
			if kindErr == nil && v.granted {
				return nil
			}
			err = cmp.Or(kindErr, error(driver.ErrHeld))
		}
		if confirmed {
			return err
		}
	}
	return nil
}

// asContender returns the attempt's future place in the queue.
func (a *attempt) asContender() contender {
	c := contender{slots: a.req.Slots}
	switch {
	case a.req.Slots > 0:
		c.mode = modeSlot
	case a.req.Shared:
		c.mode = modeShared
	}
	return c
}

// try puts the attempt into the queue, unless it is there, and waits until the lock is granted.
func (a *attempt) try(ctx context.Context) (*lease, error) {
	s, err := a.d.session(ctx)
	if s != a.s && s != nil {
		a.s, a.creation, a.node = s, nil, "" // a node of another session is not ours
	}
	if err != nil {
		return nil, err
	}
	if a.req.NoWait && a.creation == nil {
		if err := a.precheck(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.enqueue(ctx); err != nil {
		return nil, err
	}
	for {
		connSeq, status, err := a.checkQueue(ctx)
		if err != nil {
			return nil, err
		}
		a.disconnectedSince = time.Time{}
		switch {
		case status.granted:
			return a.grant(connSeq)
		case status.changed: // nobody is known to hold the lock
			continue
		case a.req.NoWait:
			return nil, driver.ErrHeld
		}
		if a.unanswered != nil {
			a.unanswered.Stop()
		}
		a.wasQueued = true
		a.req.NoteWait(nil)
		if err := a.wait(ctx, status); err != nil {
			return nil, err
		}
	}
}

// enqueue creates the node, or finds it if it was created and the answer was lost.
func (a *attempt) enqueue(ctx context.Context) error {
	if a.node != "" {
		return nil
	}
	if a.creation != nil {
		path, err := a.s.find(ctx, a.folder, a.id, a.creation)
		if err != nil {
			return err
		}
		if path != "" {
			a.setNode(path)
			return nil
		}
	}
	for tries := 0; ; tries++ {
		err := a.create(ctx)
		if !errors.Is(err, zk.ErrNoNode) || tries == 10 {
			return err
		}
		// The server removes an empty folder, so it may be gone again.
		if err := a.makeFolder(ctx); err != nil {
			return err
		}
	}
}

func (a *attempt) create(ctx context.Context) error {
	if err := a.s.ready(ctx); err != nil {
		return err
	}
	a.id = newID()
	path := child(a.folder, nodePrefix+a.id+a.d.conf.nodeSuffix(a.req))
	a.creation = startCall(a.s, func(conn *zk.Conn) (string, error) {
		return conn.Create(path, a.data, zk.FlagEphemeralSequential, a.d.conf.acl)
	})
	made, err := a.creation.wait(ctx)
	if err == nil {
		a.setNode(made)
		a.s.recordConfirmation(a.creation.start) // the leader answers every write
	} else if a.creation.isRejected() {
		a.creation = nil
	}
	return err
}

// setNode records that the attempt has a node.
func (a *attempt) setNode(path string) {
	a.node, a.stat, a.createdAt = baseName(path), zk.Stat{}, driver.Now()
}

// newID returns a random UUID, in the form that Curator writes.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// makeFolder creates the folder of the lock as a container, which the server removes after it
// has been empty for a while.
func (a *attempt) makeFolder(ctx context.Context) error {
	c := &a.d.conf
	err := a.s.mkdir(ctx, a.folder, true)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if !c.makeRoot {
		return c.missingRootError()
	}
	if err := a.s.mkdir(ctx, c.root, false); err != nil {
		return err
	}
	return a.s.mkdir(ctx, a.folder, true)
}

// mkdir creates a node that will have children, unless it exists.
func (s *session) mkdir(ctx context.Context, path string, container bool) error {
	_, _, err := do(ctx, s, func(conn *zk.Conn) (string, error) {
		if container {
			return conn.CreateContainer(path, nil, zk.FlagContainer, s.d.conf.acl)
		}
		return conn.Create(path, nil, zk.FlagPersistent, s.d.conf.acl)
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// A queueStatus is the result of one look at the queue.
type queueStatus struct {
	verdict
	recheckAfter time.Duration // after this time, check the queue again in any case
	changed      bool          // the queue has changed meanwhile
}

// checkQueue finds the attempt's place in the queue. connSeq identifies the connection on which
// the answer came.
func (a *attempt) checkQueue(ctx context.Context) (connSeq int, st queueStatus, err error) {
	if err := a.s.ready(ctx); err != nil {
		return 0, st, err
	}
	connSeq = a.s.currentConnSeq()
	list := startCall(a.s, listChildren(a.folder))
	// The other requests are sent at the same time.
	if a.stat.Czxid == 0 {
		if err := a.readOwn(ctx); err != nil {
			return 0, st, err
		}
	}
	if err := a.ensureConfirmed(ctx); err != nil {
		return 0, st, err
	}
	snap, err := list.wait(ctx)
	if err != nil {
		return 0, st, err
	}
	all := parseQueue(snap.names)
	mine := slices.IndexFunc(all, func(c contender) bool { return c.node == a.node })
	if mine < 0 {
		a.node, a.creation = "", nil
		return 0, st, errNodeGone
	}
	a.hasFollower = mine < len(all)-1
	if err := a.s.checkKind(ctx, a.folder, snap); err != nil {
		return 0, st, err
	}
	st, err = a.judge(ctx, all[mine], all[:mine])
	return connSeq, st, err
}

// judge returns the verdict on the attempt's place in the queue. If the time of a kept node ahead
// is over, it deletes that node instead.
func (a *attempt) judge(ctx context.Context, me contender, ahead []contender) (queueStatus, error) {
	st := queueStatus{recheckAfter: a.s.d.conf.timeout} // a watch event that got lost costs no more than this
	var kindErr error
	st.verdict, kindErr = judge(me, ahead)
	for _, c := range ahead {
		if !c.kept {
			continue
		}
		switch left, err := a.reapKept(ctx, c); {
		case err != nil:
			return st, err
		case left <= 0: // the verdict counts that node
			return queueStatus{changed: true}, nil
		// Others wait for the one before them, which deletes it. If that is a foreign client or hangs,
		// they look after the session's timeout: any earlier, each MinHold would end with a herd.
		case st.watchFolder || st.watch == c.node:
			st.recheckAfter = min(st.recheckAfter, left)
		}
	}
	return st, kindErr
}

// ensureConfirmed makes sure that the leader has recently heard from us. A server that is cut
// off from the leader may show a node whose session is over.
func (a *attempt) ensureConfirmed(ctx context.Context) (err error) {
	if !a.s.recentConfirmation(&a.start) {
		a.start, err = a.s.confirm(ctx)
	}
	return err
}

// recentConfirmation reports whether the leader has answered us recently enough for a lease,
// and sets start to the instant from which that lease counts.
func (s *session) recentConfirmation(start *driver.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if driver.Now().Sub(s.confirmedFrom) > s.acceptableLoss() {
		return false
	}
	*start = s.confirmedFrom
	return true
}

// readOwn reads the attempt's own node, which must belong to its session.
func (a *attempt) readOwn(ctx context.Context) error {
	snap, _, err := do(ctx, a.s, readNode(child(a.folder, a.node)))
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && snap.stat.EphemeralOwner != a.s.id:
		a.node, a.creation = "", nil
		return errNodeGone
	case err != nil:
		return err
	}
	a.stat = snap.stat
	return nil
}

// currentConnSeq returns the number of the latest connection.
func (s *session) currentConnSeq() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connSeq
}

// wait returns when the attempt may have become first.
func (a *attempt) wait(ctx context.Context, st queueStatus) error {
	key := watchKey{path: child(a.folder, st.watch)}
	if st.watchFolder {
		key = watchKey{path: a.folder, children: true}
	}
	ahead, snap, err := a.s.watch(ctx, key)
	switch {
	case errors.Is(err, errNodeGone):
		return nil
	case err != nil:
		return err
	case st.watchFolder && a.hasMoved(snap.names):
		return nil
	// The node ahead was granted after our check, and has said so.
	case !st.watchFolder && a.req.Slots > 0 && snap.stat.Version > 0:
		return nil
	}
	if c, ok := parse(st.watch); ok && !st.watchFolder {
		if err := c.checkSession(a.folder, snap); err != nil {
			return err
		}
	}
	select {
	case <-ahead.changed:
	case <-time.After(st.recheckAfter):
	case <-a.s.ctx.Done():
		return context.Cause(a.s.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// hasMoved reports whether the attempt is no longer in the place from which it watches the
// folder.
func (a *attempt) hasMoved(names []string) bool {
	all := parseQueue(names)
	mine := slices.IndexFunc(all, func(c contender) bool { return c.node == a.node })
	if mine < 0 {
		return true
	}
	v, err := judge(all[mine], all[:mine])
	return err != nil || !v.watchFolder
}

// grant makes a lease of the attempt's node, unless the connection that confirmed it is gone.
func (a *attempt) grant(connSeq int) (*lease, error) {
	block := blockSizeOf(a.req)
	l := &lease{
		s: a.s, req: a.req, folder: a.folder, path: child(a.folder, a.node), zxid: a.stat.Czxid, grantedAt: driver.Now(),
		grant: driver.Grant{
			Token: tokenOf(a.stat.Czxid), Tokens: block, Start: a.start, TTL: leaseTTL(a.s.negotiatedTimeout()),
			TellsWanted: block > 1, // a lease with one token can't be handed over, so it does not need to know
		},
		releaseSem: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := a.s.register(l, connSeq); err != nil {
		return nil, err
	}
	l.startWanted(a.hasFollower)
	if a.hasFollower && a.req.Slots > 0 {
		l.notifyNextWaiter()
	}
	return l, nil
}

// cleanUp deletes the attempt's node. It does not depend on the context of Acquire.
func (a *attempt) cleanUp() {
	if a.creation == nil {
		return
	}
	o := &orphan{folder: a.folder, id: a.id, creation: a.creation}
	if a.node != "" {
		o.path, o.creation = child(a.folder, a.node), nil
	}
	a.s.addOrphan(o)
	select {
	case <-o.deleted:
	case <-time.After(cleanupTimeout):
	case <-a.s.ctx.Done():
	}
}
