package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// A hold is a node that has its turn. Several leases may stand for it, if its owner asks again.
type hold struct {
	s      *session
	req    driver.Request
	folder string
	path   string
	token  uint64
	start  driver.Instant // of the grant
	alone  place          // of its node, if there was no other; else zero
	until  driver.Instant // when its own lease ends; zero until somebody renews it; guarded by session.mu
	turn   chan struct{}  // of one: who releases it

	mu      sync.Mutex
	state   state
	watched int           // the connection on which its node is watched; 0 for none
	lost    []func(error) // Request.OnLost of all requests
	dying   *orphan       // that its node has become, after a release that was not answered
}

// A state is what has become of a hold.
type state uint8

const (
	held state = iota
	released
	lost
)

// A lease is what one acquisition got of a hold.
type lease struct {
	hold  *hold
	grant driver.Grant
}

// A holdKey is by what a hold is found again whose owner asks once more.
type holdKey struct{ name, owner string }

func (h *hold) key() holdKey { return holdKey{h.req.Name, h.req.Owner} }

// hold notes a hold, of which a connection has told. From then on it is lost with that. Its node may be watched already.
func (s *session) hold(h *hold, link int, own *notice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return context.Cause(s.life)
	}
	if !s.isUp() || s.links != link {
		return errApart
	}
	if own != nil {
		if own.told() {
			return errGone
		}
		h.watched = link
	}
	s.holds[h.path] = h
	if !s.guarded {
		s.guarded = s.d.life.Go(s.guard)
	}
	select {
	case s.young <- struct{}{}:
	default:
	}
	s.d.heldMu.Lock()
	defer s.d.heldMu.Unlock()
	s.d.held[h.key()] = h
	return nil
}

// lease returns one that begins at start.
func (h *hold) lease(req driver.Request, start driver.Instant) *lease {
	l := &lease{hold: h, grant: driver.Grant{Token: h.token, Start: start, TTL: h.s.lifetime()}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if req.OnLost != nil {
		h.lost = append(h.lost, req.OnLost)
		if h.state == lost {
			req.OnLost(driver.ErrLost)
		}
	}
	return l
}

// lifetime is tenure for who does not have the mutex.
func (s *session) lifetime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenure()
}

// again returns a lease for who already holds what it asks for; nil for others.
func (d *Driver) again(ctx context.Context, req driver.Request) (*lease, error) {
	d.heldMu.Lock()
	h := d.held[holdKey{req.Name, req.Owner}]
	d.heldMu.Unlock()
	if h == nil {
		return nil, nil //nolint:nilnil // nobody
	}
	start, err := h.s.renew(ctx, []*hold{h})
	switch {
	case errors.Is(err, errOver), err == nil && h.over():
		return nil, nil //nolint:nilnil // no longer
	case err != nil:
		return nil, err
	}
	h.s.extended(h, start)
	return h.lease(req, start), nil
}

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// over reports whether the hold has ended.
func (h *hold) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state != held
}

// settle ends the hold, if it has not ended yet.
func (h *hold) settle(to state) bool {
	h.mu.Lock()
	if h.state != held {
		h.mu.Unlock()
		return false
	}
	h.state = to
	h.mu.Unlock()
	h.s.mu.Lock()
	delete(h.s.holds, h.path)
	h.s.mu.Unlock()
	d := h.s.d
	d.heldMu.Lock()
	defer d.heldMu.Unlock()
	if d.held[h.key()] == h {
		delete(d.held, h.key())
	}
	return true
}

// lose ends the hold because the store, or our clock, said so. Its node, if it is still there,
// keeps others out until due, and for no longer than it takes to delete it then.
func (h *hold) lose(why error, due driver.Instant) {
	if !h.settle(lost) {
		return
	}
	h.mu.Lock()
	for _, tell := range h.lost {
		tell(why)
	}
	h.mu.Unlock()
	h.bury(due)
}

// bury hands the node over to the sweeper, for when it is due.
func (h *hold) bury(due driver.Instant) *orphan {
	o := &orphan{folder: h.folder, path: h.path, due: due}
	h.s.sweep(o)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dying = o
	return o
}

// drop ends a hold that nobody has got.
func (h *hold) drop() { h.settle(released) }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	h := l.hold
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.settle(released) {
		return h.release(ctx)
	}
	h.mu.Lock()
	state, dying := h.state, h.dying
	h.mu.Unlock()
	if state == lost {
		return driver.ErrLost
	}
	if dying == nil {
		return nil
	}
	return dying.wait(ctx) // an earlier call has seen no answer
}

// wait returns nil when the node is not there any more.
func (o *orphan) wait(ctx context.Context) error {
	select {
	case <-o.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release deletes the node, or makes it stay until MinHold is over.
func (h *hold) release(ctx context.Context) error {
	if left := h.req.MinHold - driver.Now().Sub(h.start); left > 0 {
		return h.stay(ctx, left)
	}
	_, _, err := do(ctx, h.s, remove(h.path))
	switch {
	case err == nil:
		h.s.left(h)
		return nil
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, errOver):
		return h.late(err)
	}
	buried := h.bury(driver.Instant{})
	if answered(err) && ctx.Err() == nil {
		return err
	}
	return buried.wait(ctx) // the sweeper finds out whether it was done
}

// maxLast bounds what a session remembers of folders.
const maxLast = 1 << 14

// latest is where the last node of ours stood that was alone in its folder and is deleted.
func (s *session) latest(folder string) place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[folder]
}

// left remembers where the node stood that was just deleted, for [attempt.next].
func (s *session) left(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.alone == (place{}) {
		delete(s.last, h.folder)
		return
	}
	if len(s.last) >= maxLast {
		clear(s.last)
	}
	s.last[h.folder] = h.alone
}

// late is what Release answers when the hold turns out to have ended before.
func (h *hold) late(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = lost
	return fmt.Errorf("%w: %w", driver.ErrLost, err)
}

// mark tells the next in the line of a semaphore, who may watch this node, that it is first among those that wait now. Who comes
// later needs no mark: it sees so by itself. A mark that gets lost costs that one a nap.
func (h *hold) mark(data []byte) {
	begin(h.s, func(conn *zk.Conn) (*zk.Stat, error) { return conn.Set(h.path, data, -1) })
}

// Renew implements [driver.Driver]. The leader is asked once for all leases: it answers if the
// session lives, and what it has decided before that, such as to delete a node, has reached us
// when the answer does. That takes a watch on each node: a renewal sets those that the guard has
// not set yet.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	sessions := map[*session][]*hold{}
	bad := d.life.Ready(ctx, d.bad)
	for _, l := range due {
		if h := l.(*lease).hold; !h.over() {
			sessions[h.s] = append(sessions[h.s], h)
		}
	}
	type outcome struct {
		start driver.Instant
		err   error
	}
	outcomes := map[*session]outcome{}
	for s, holds := range sessions {
		o := outcome{err: bad}
		if bad == nil {
			o.start, o.err = s.renew(ctx, holds)
		}
		s.renewed(holds, o.start, o.err)
		outcomes[s] = o
	}
	for i, l := range due {
		h := l.(*lease).hold
		o := outcomes[h.s]
		switch {
		case h.over() || errors.Is(o.err, errOver):
			answers[i].Err = driver.ErrLost
		case o.err != nil:
			answers[i].Err = o.err
		default:
			answers[i].Start = o.start
		}
	}
	return answers
}

// renew confirms the session, and sees to it that all holds are watched when that is answered. If a watch has been used up by
// then, what has happened to the node after that was not told, and it is to be looked at again.
func (s *session) renew(ctx context.Context, holds []*hold) (driver.Instant, error) {
	for {
		if s.life.Err() != nil {
			return driver.Instant{}, errOver
		}
		link := s.linkNow()
		watching := s.beginWatches(ctx, holds, link)
		start, err := s.confirm(ctx)
		err = cmp.Or(err, watching())
		if err == nil && s.linkNow() != link {
			err = errApart // what was decided between two connections is told late
		}
		if err != nil || !slices.ContainsFunc(holds, func(h *hold) bool { return h.unseen(link) }) {
			return start, err
		}
	}
}

// beginWatches sets watches on those holds that have none. The function that it returns waits until they are set, and returns
// one of the errors.
func (s *session) beginWatches(ctx context.Context, holds []*hold, link int) (wait func() error) {
	var watching sync.WaitGroup
	failed := make(chan error, 1)
	slots := make(chan struct{}, 16) // the server is asked for so many at once
	for _, h := range holds {
		if !h.unseen(link) {
			continue
		}
		slots <- struct{}{}
		watching.Go(func() {
			defer func() { <-slots }()
			if err := h.watch(ctx, link); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	return func() error {
		watching.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
}

// unseen reports whether the hold lasts, for all that we know, and its end would not be told on a connection.
func (h *hold) unseen(link int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == held && h.watched != link
}

// watch sees to it that the end of the node is told on a connection.
func (h *hold) watch(ctx context.Context, link int) error {
	n, seen, err := h.s.look(ctx, watch{path: h.path})
	switch {
	case errors.Is(err, errGone), err == nil && seen.stat.Czxid != int64(h.token):
		h.lose(driver.ErrLost, driver.Instant{})
		return nil
	case err != nil:
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !n.told() { // maybe before we came here
		h.watched = link
	}
	return nil
}

func (h *hold) unwatched() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = 0
}

// IsOwner returns a check for a multi of ZooKeeper that holds as long as the hold with this token does: the nodes that the multi writes are
// written under the lock, or not at all, whatever the clocks do. It goes to the same ensemble, over a connection without a chroot.
//
//	_, err := conn.Multi(d.IsOwner(lock.Name(), lock.Token()), &zk.SetDataRequest{Path: "/account", Data: data, Version: -1})
//	// zk.ErrNoNode: the lock was lost
//
// For a hold that this driver does not have, the check never holds.
func (d *Driver) IsOwner(name string, token uint64) *zk.CheckVersionRequest {
	const anyVersion = -1
	d.heldMu.Lock()
	defer d.heldMu.Unlock()
	for key, h := range d.held {
		if key.name == name && h.token == token {
			return &zk.CheckVersionRequest{Path: h.path, Version: anyVersion}
		}
	}
	return &zk.CheckVersionRequest{Path: child(d.conf.folder(name), "not held"), Version: anyVersion}
}
