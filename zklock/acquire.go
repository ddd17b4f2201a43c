package zklock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

const (
	// outage is for how long a waiter puts up with an ensemble that can't be reached.
	outage = 30 * time.Second

	// withdrawal bounds how long an acquisition that has failed stays to see its node deleted. After that the sweeper goes on.
	withdrawal = driver.CancelTimeout * 3 / 5

	// noWaitTimeout bounds a request that must not wait, if its context does not.
	noWaitTimeout = driver.AnswerTimeout * 9 / 10
)

// An attempt is one call of Acquire. It has one node at a time, in one session.
type attempt struct {
	d      *Driver
	req    driver.Request
	folder string
	data   []byte
	began  time.Time

	s     *session
	id    string        // in the name of the node
	made  *call[string] // that creates it; nil if there is none
	list  *call[sight]  // of the folder, asked for behind the node's creation; nil if it is to be asked for
	name  string        // of the node; "" if it is not known whether it is there
	stat  zk.Stat       // of the node; without a Czxid if it was not looked at
	start driver.Instant
	born  driver.Instant // not before the node's Ctime
	prev  place          // of the session's node before, that was alone and deleted before this one was made; zero if there is none
	alone place          // of the node, if there was no other when it was last looked at; else zero
	own   *notice        // of the node; nil if it is not watched

	answered bool // the creation was, on the connection that it was sent on
	followed bool // somebody stood behind it when the line was last looked at

	queued bool      // it has had a node
	failed time.Time // since when the ensemble can't be reached; zero if it can
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.life.Ready(ctx, d.bad); err != nil {
		return nil, err
	}
	if err := d.check(req); err != nil {
		return nil, err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	if req.NoWait {
		ctx, cancel = context.WithTimeoutCause(ctx, noWaitTimeout, errSilent)
		defer cancel()
	}
	if l, err := d.again(ctx, req); l != nil || err != nil {
		return leaseOrError(l, d.explain(err, d.conf.folder(req.Name)))
	}
	a := &attempt{d: d, req: req, folder: d.conf.folder(req.Name), data: newInfo(req).encode(), began: time.Now()}
	l, err := a.acquire(ctx)
	if err == nil && ctx.Err() != nil {
		l.hold.drop()
		err = context.Cause(ctx) // the grant came too late
	}
	if err == nil {
		return l, nil
	}
	if ctx.Err() != nil {
		err = ended(ctx, err)
	}
	a.withdraw()
	return nil, d.explain(err, a.folder)
}

func leaseOrError(l *lease, err error) (driver.Lease, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// acquire tries until the lock is granted, or there is no point in it any more.
func (a *attempt) acquire(ctx context.Context) (*lease, error) {
	for {
		l, err := a.try(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return l, err
		case errors.Is(err, errGone), errors.Is(err, zk.ErrSessionExpired) && (a.queued || a.patient()):
			// Somebody has deleted our node, or the session has expired: we queue anew, at the
			// end.
		case !errors.Is(err, errApart) || !a.patient():
			return nil, err
		}
	}
}

// patient reports whether to go on although there is no connection. Who has queued can wait longer than who has only come, and
// who does not want to wait at all.
func (a *attempt) patient() bool {
	if !a.queued || a.req.NoWait {
		return time.Since(a.began) < a.d.conf.dial
	}
	if a.failed.IsZero() {
		a.failed = time.Now()
	}
	return time.Since(a.failed) < outage
}

// glance looks whether it is worth to make a node. What it sees may be old, unless it is confirmed.
func (a *attempt) glance(ctx context.Context) error {
	for _, confirmed := range []bool{false, true} {
		if confirmed {
			if _, err := a.s.catchUp(ctx); err != nil {
				return err
			}
		}
		seen, _, err := do(ctx, a.s, children(a.folder))
		if err != nil {
			return err
		}
		ahead := line(seen.names)
		if slices.ContainsFunc(ahead, func(c contender) bool { return c.kept }) {
			return nil // it may be over, which only who has a node can tell
		}
		v, err := judge(a.me(), ahead)
		if err == nil && v.granted {
			return nil
		}
		if err == nil {
			err = driver.ErrHeld
		}
		if confirmed {
			return err
		}
	}
	return nil
}

// me is what the attempt's node will be in the line.
func (a *attempt) me() contender {
	c := contender{slots: a.req.Slots}
	switch {
	case a.req.Slots > 0:
		c.mode = modeSlot
	case a.req.Shared:
		c.mode = modeShared
	}
	return c
}

// try queues, if the attempt is not in the queue, and waits for its turn.
func (a *attempt) try(ctx context.Context) (*lease, error) {
	s, err := a.d.session(ctx)
	if s != a.s && s != nil {
		a.s, a.made, a.name = s, nil, "" // a node of another session is none of ours
	}
	if err != nil {
		return nil, err
	}
	if a.req.NoWait && a.made == nil {
		if err := a.glance(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.enqueue(ctx); err != nil {
		return nil, err
	}
	for {
		link, turn, err := a.look(ctx)
		if err != nil {
			return nil, err
		}
		a.failed = time.Time{}
		switch {
		case turn.granted:
			return a.grant(link)
		case a.req.NoWait && !turn.now:
			return nil, driver.ErrHeld
		}
		free, err := a.wait(ctx, turn)
		if err != nil {
			return nil, err
		}
		if free {
			if err := a.fresh(ctx); err != nil {
				return nil, err
			}
			return a.grant(link)
		}
	}
}

// enqueue makes the node, or finds it if it was made and the answer lost.
func (a *attempt) enqueue(ctx context.Context) error {
	if a.name != "" {
		return nil
	}
	if a.made != nil {
		path, start, err := a.s.find(ctx, a.folder, a.id)
		if err != nil {
			return err
		}
		if path != "" {
			a.placed(path, start)
			return nil
		}
	}
	for tries := 0; ; tries++ {
		err := a.create(ctx)
		if !errors.Is(err, zk.ErrNoNode) || tries == 10 {
			return err
		}
		if err := a.makeFolder(ctx); err != nil { // the server removes it when it is empty, so it may be gone again
			return err
		}
	}
}

func (a *attempt) create(ctx context.Context) error {
	if err := a.s.ready(ctx); err != nil {
		return err
	}
	a.id = newID()
	path := child(a.folder, prefix+a.id+a.d.conf.mark(a.req))
	a.prev = a.s.latest(a.folder)
	sent := a.s.expect(path)
	a.made = begin(a.s, func(conn *zk.Conn) (string, error) {
		defer a.s.created(path)
		return conn.Create(path, a.data, zk.FlagEphemeralSequential, a.d.conf.acl)
	})
	select { // the list is on its way while the servers write the node down
	case <-sent:
		a.list = begin(a.s, children(a.folder))
	case <-a.made.done:
	case <-ctx.Done():
	}
	made, err := a.made.wait(ctx)
	if err == nil {
		a.placed(made, a.s.ack(a.made.start)) // a write is the leader's
		a.answered = true
	} else if a.made.refused() {
		a.made = nil
	}
	if err != nil {
		a.list = nil
	}
	return err
}

// placed notes that the attempt has a node.
func (a *attempt) placed(path string, start driver.Instant) {
	a.name, a.stat, a.start, a.born = node(path), zk.Stat{}, start, driver.Now()
	a.queued, a.answered, a.own = true, false, nil
}

// newID returns a random UUID, in the form that Curator writes.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// makeFolder makes the folder of the lock: a container, which the server removes when it was empty for a while.
func (a *attempt) makeFolder(ctx context.Context) error {
	c := &a.d.conf
	err := a.s.mkdir(ctx, a.folder, true)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if !c.makeRoot {
		return c.noRoot()
	}
	if err := a.s.mkdir(ctx, c.root, false); err != nil {
		return err
	}
	return a.s.mkdir(ctx, a.folder, true)
}

// mkdir makes a node that is to have children. Servers before ZooKeeper 3.5 have no containers: there it stays.
func (s *session) mkdir(ctx context.Context, path string, container bool) error {
	_, _, err := do(ctx, s, func(conn *zk.Conn) (string, error) {
		if container {
			made, err := conn.CreateContainer(path, nil, zk.FlagContainer, s.d.conf.acl)
			if err == nil || err.Error() != unimplemented {
				return made, err
			}
		}
		return conn.Create(path, nil, zk.FlagPersistent, s.d.conf.acl)
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// A turn is what a look at the line came to.
type turn struct {
	verdict
	nap  time.Duration // after which to look again in any case
	now  bool          // the line has changed meanwhile
	next bool          // there is one ahead, and when that goes, and nobody takes its place, it is our turn
}

// look finds out where the attempt stands in the line. link is the connection that said so.
func (a *attempt) look(ctx context.Context) (link int, t turn, err error) {
	if err := a.s.ready(ctx); err != nil {
		return 0, t, err
	}
	link = a.s.linkNow()
	if a.own != nil && a.own.told() {
		a.own = nil
	}
	list := a.list
	if a.list = nil; list == nil {
		list = begin(a.s, children(a.folder))
	}
	known := a.stat.Czxid != 0
	if known { // the leader is asked beside the list
		if err := a.fresh(ctx); err != nil {
			return 0, t, err
		}
	}
	seen, err := list.wait(ctx)
	if err != nil {
		return 0, t, err
	}
	all := line(seen.names)
	mine := slices.IndexFunc(all, func(c contender) bool { return c.node == a.name })
	if mine < 0 {
		a.name, a.made = "", nil
		return 0, t, errGone
	}
	a.alone = place{}
	if len(seen.names) == 1 {
		a.alone = place{folder: seen.stat.Czxid, seq: all[mine].seq}
	}
	a.followed = mine < len(all)-1
	if t, err = a.judge(ctx, all[mine], all[:mine]); err != nil {
		return 0, t, err
	}
	t.next = mine == 1 && !t.all
	if t.granted && !known {
		err = a.trust(ctx, seen)
	}
	return link, t, err
}

// judge is the verdict on the attempt's place in the line, when it has outlasted whom it can.
func (a *attempt) judge(ctx context.Context, me contender, ahead []contender) (t turn, err error) {
	t.nap = a.s.d.conf.timeout // what was told and not heard costs no more than that
	for _, c := range ahead {
		if c.kept {
			left, err := a.outlast(ctx, c)
			if err != nil {
				return t, err
			}
			t.now = t.now || left <= 0
			t.nap = min(t.nap, left)
		}
	}
	t.verdict, err = judge(me, ahead)
	return t, err
}

// trust sees to it that a list can be relied on in which nobody is before us: that our node is our session's, what its Czxid is,
// and that the leader has lately heard of us.
func (a *attempt) trust(ctx context.Context, seen sight) error {
	if a.stat.Czxid == 0 && !a.next(seen) {
		if err := a.recognise(ctx, a.inspect()); err != nil {
			return err
		}
	}
	return a.fresh(ctx)
}

// fresh sees to it that the leader has lately heard of us. A server that is cut off from it may show a node whose session is no
// more.
func (a *attempt) fresh(ctx context.Context) (err error) {
	if !a.s.heard(&a.start) {
		a.start, err = a.s.confirm(ctx)
	}
	return err
}

// next spares the look at a node whose creation was the last change of its folder.
func (a *attempt) next(seen sight) bool {
	if !a.answered || !a.prev.before(a.name, seen) {
		return false
	}
	a.stat = zk.Stat{Czxid: seen.stat.Pzxid, EphemeralOwner: a.s.id}
	return true
}

// heard reports whether the leader has answered us lately enough for a lease to begin with that, and from when it counts.
func (s *session) heard(start *driver.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if driver.Now().Sub(s.acked) > s.hardly() {
		return false
	}
	*start = s.acked
	return true
}

// inspect looks at the attempt's own node.
func (a *attempt) inspect() *call[sight] { return begin(a.s, read(child(a.folder, a.name))) }

// recognise takes what was seen of the attempt's own node: it must be that of its session.
func (a *attempt) recognise(ctx context.Context, own *call[sight]) error {
	seen, err := own.wait(ctx)
	if err := gone(err); err != nil && !errors.Is(err, errGone) {
		return err
	}
	if err != nil || seen.stat.EphemeralOwner != a.s.id {
		a.name, a.made = "", nil
		return errGone
	}
	a.stat = seen.stat
	return nil
}

// linkNow tells connections apart.
func (s *session) linkNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links
}

// wait returns when it may be the attempt's turn. It is, without another look at the line, if free.
func (a *attempt) wait(ctx context.Context, t turn) (free bool, err error) {
	if t.now {
		return false, nil
	}
	if err := a.s.ready(ctx); err != nil {
		return false, err
	}
	own := a.beginWait(t)
	w := watch{path: child(a.folder, t.watch)}
	if t.all {
		w = watch{path: a.folder, children: true}
	}
	ahead, answer := a.s.beginLook(w)
	if own != nil {
		if err := a.recognise(ctx, own); err != nil {
			return false, err
		}
	}
	seen, err := answer.wait(ctx)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, nil
	case err != nil:
		return false, err
	case t.all && a.moved(seen.names):
		return false, nil
	case !t.all && a.req.Slots > 0 && seen.stat.Version > 0: // it has been granted since we looked at the line
		return false, nil
	}
	return a.until(ctx, t, ahead, decode(seen.data))
}

// beginWait looks at the attempt's own node, in the same round trip as at the one ahead; nil if that is not necessary. Who is
// next watches it.
func (a *attempt) beginWait(t turn) (own *call[sight]) {
	switch {
	case t.next && a.own == nil:
		a.own, own = a.s.beginLook(watch{path: child(a.folder, a.name)})
	case a.stat.Czxid == 0:
		own = a.inspect()
	}
	return own
}

// until waits for a change of what is ahead.
func (a *attempt) until(ctx context.Context, t turn, ahead *notice, in info) (free bool, err error) {
	var own <-chan struct{}
	if a.own != nil {
		own = a.own.changed
	}
	timer := time.NewTimer(t.nap)
	defer timer.Stop()
	select {
	case <-ahead.changed:
	case <-own: // somebody has deleted it, or changed it
	case <-timer.C:
	case <-a.s.life.Done():
		return false, context.Cause(a.s.life)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return t.next && !in.Stays && a.first(ahead), nil
}

// first reports whether the only one that was ahead has gone while our node was there: what a server tells comes in the order in
// which it happened. So it takes no other look at the line.
func (a *attempt) first(ahead *notice) bool {
	return ahead.told() && ahead.gone && a.own != nil && !a.own.told()
}

// moved reports whether a list of names has the attempt not in the place from which it watches all.
func (a *attempt) moved(names []string) bool {
	all := line(names)
	mine := slices.IndexFunc(all, func(c contender) bool { return c.node == a.name })
	return mine != a.req.Slots
}

// grant makes a lease of the attempt's turn, unless the connection that it rests on is gone.
func (a *attempt) grant(link int) (*lease, error) {
	h := &hold{s: a.s, req: a.req, folder: a.folder, path: child(a.folder, a.name), token: uint64(a.stat.Czxid), start: a.start, alone: a.alone,
		turn: make(chan struct{}, 1)}
	if err := a.s.hold(h, link, a.own); err != nil {
		return nil, err
	}
	if a.followed && a.req.Slots > 0 {
		h.mark(a.data)
	}
	return h.lease(a.req, a.start), nil
}

// withdraw leaves no node behind. It does not depend on the context of Acquire.
func (a *attempt) withdraw() {
	if a.made == nil {
		return
	}
	o := &orphan{folder: a.folder, id: a.id, made: a.made}
	if a.name != "" {
		o.path, o.made = child(a.folder, a.name), nil
	}
	a.s.sweep(o)
	timer := time.NewTimer(withdrawal)
	defer timer.Stop()
	select {
	case <-o.gone:
	case <-timer.C:
	case <-a.s.life.Done():
	}
}
