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

// errAgain means that an attempt has lost its place, or its session, and has to begin anew.
const errAgain driver.Sentinel = "the key in the queue is gone"

// errKeyGone means that the key of a hold was deleted: by force, or with its session.
var errKeyGone = fmt.Errorf("%w: its key is gone", driver.ErrLost)

// An attempt is one call of Acquire.
type attempt struct {
	d    *Driver
	req  driver.Request
	note note

	s        *session
	key      string // on the lease of s; "" for none
	nonce    string // in the key
	revision int64  // that created it; 0 if it is not known to be there
	sent     bool   // it may be there
	unsure   bool   // and it may be put yet, by a call that was given up
	queued   bool   // we have waited in a queue

	failed  time.Time // since when etcd can't be reached; zero if it can
	trouble error     // what kept us from it last; nil if it can be reached
}

// Acquire implements [driver.Driver]. A waiter whose session ends, or whose key is deleted, begins anew at the end of the
// queue.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
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
	a := &attempt{d: d, req: req, note: newNote(req)}
	l, err := a.acquire(ctx)
	if err == nil && ctx.Err() == nil {
		return l, nil
	}
	if l != nil && l.hold.key == a.key { // the grant came too late
		l.hold.forget()
		a.nonce = "" // another call of the owner may have joined the hold, and delete the key by its own release
	}
	a.withdraw()
	if ctx.Err() != nil {
		err = a.ended(context.Cause(ctx))
	}
	return nil, explain(err)
}

// acquire tries until it is granted, refused for good, or out of patience.
func (a *attempt) acquire(ctx context.Context) (*lease, error) {
	for {
		began := time.Now()
		l, err := a.begin(ctx)
		if err == nil || ctx.Err() != nil || !a.again(err, began) {
			return l, err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-a.d.life.Done():
			return nil, driver.ErrClosed
		}
	}
}

// ended is the error of an attempt whose context has ended.
func (a *attempt) ended(cause error) error {
	trouble := a.trouble
	if trouble == nil && a.d.client.ActiveConnection().GetState() == connectivity.TransientFailure {
		trouble = &reachError{asked: a.d.client.Endpoints(), why: "no connection"}
	}
	if trouble == nil {
		return cause
	}
	return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, trouble, cause)
}

// again reports whether what was begun then, and has failed, is to be tried once more.
func (a *attempt) again(err error, began time.Time) bool {
	switch {
	case noLease(err) && a.s != nil:
		a.s.lose(fmt.Errorf("%w: its session is over: etcd has ended it", driver.ErrLost))
		return true
	case errors.Is(err, errAgain), errors.Is(err, driver.ErrLost):
		return true
	case !passing(err):
		return false
	case a.failed.IsZero():
		a.failed = began
	}
	a.trouble = err
	if a.queued {
		return time.Since(a.failed) < outage
	}
	if r, unreachable := errors.AsType[*reachError](err); unreachable && !r.silent {
		return false // the caller may ask again: there is no place to be kept
	}
	return time.Since(a.failed) < patience
}

// begin makes a try in the present session.
func (a *attempt) begin(ctx context.Context) (*lease, error) {
	s, err := a.d.open(ctx)
	if err != nil {
		return nil, err
	}
	if h := a.d.holds.of(a.req); h != nil {
		return a.rejoin(ctx, h)
	}
	if a.key == "" || a.s != s {
		a.s, a.nonce = s, a.d.nonces.take()
		a.key = keyOf(a.req.Name, int64(s.id), a.nonce)
		a.revision, a.sent, a.unsure = 0, false, false
	}
	if a.req.NoWait || !a.d.busy(a.req.Name) {
		if l, err := a.try(ctx); a.req.NoWait || !errors.Is(err, driver.ErrHeld) {
			return l, err
		}
	}
	return a.wait(ctx)
}

// rejoin gives the owner what it holds once more.
func (a *attempt) rejoin(ctx context.Context, h *hold) (*lease, error) {
	b := h.s.beat()
	switch err := h.confirm(ctx); {
	case errors.Is(err, driver.ErrLost):
		h.lose(err)
		return nil, errAgain
	case err != nil:
		return nil, err
	}
	start, err := b.wait(ctx)
	if err != nil {
		return nil, err
	}
	return h.lease(a.req, start), nil
}

// try puts the key if there is no other one, and reads the queue if there is.
func (a *attempt) try(ctx context.Context) (*lease, error) {
	b := a.s.beat() // on the way at the same time
	nobody := clientv3.Compare(clientv3.CreateRevision(prefixOf(a.req.Name)), "=", 0).WithPrefix()
	answer, err := a.send(ctx, nobody, a.put(true), clientv3.OpGet(prefixOf(a.req.Name), clientv3.WithPrefix()))
	switch {
	case err != nil:
		return nil, err
	case answer.Succeeded:
		a.revision = answer.Header.Revision
		return a.grant(ctx, b, true)
	}
	q := queueOf(a.req.Name, answer.Responses[0].GetResponseRange().Kvs)
	switch {
	case q.find(a.key) >= 0: // an earlier try was heard
	case q.judge(a.note) == clashes:
		return nil, q.clash(a.note)
	case q.judge(a.note) == waits:
		return nil, driver.ErrHeld
	}
	return a.enter(ctx, b)
}

// enter puts the key behind those that are there, and looks at once whether it can hold beside them.
func (a *attempt) enter(ctx context.Context, b *beat) (*lease, error) {
	read := clientv3.OpGet(prefixOf(a.req.Name), clientv3.WithPrefix())
	absent := clientv3.Compare(clientv3.CreateRevision(a.key), "=", 0)
	answer, err := a.send(ctx, absent, a.put(false), read, read)
	if err != nil {
		return nil, err
	}
	last := answer.Responses[len(answer.Responses)-1]
	q := queueOf(a.req.Name, last.GetResponseRange().Kvs)
	i := q.find(a.key)
	if i < 0 {
		return nil, errAgain
	}
	a.revision = q[i].revision
	switch before := q[:i]; before.judge(a.note) {
	case granted:
		return a.grant(ctx, b, false)
	case clashes:
		return nil, before.clash(a.note)
	}
	return nil, driver.ErrHeld
}

// put is the operation that puts the key.
func (a *attempt) put(held bool) clientv3.Op {
	return clientv3.OpPut(a.key, a.note.text(held), clientv3.WithLease(a.s.id))
}

// send puts the key if a condition holds, and reads otherwise; with a second read, then as well.
func (a *attempt) send(ctx context.Context, iff clientv3.Cmp, put, otherwise clientv3.Op, then ...clientv3.Op) (*clientv3.TxnResponse, error) {
	sent := a.sent
	a.sent = true
	answer, err := a.d.commit(ctx, []clientv3.Cmp{iff}, append([]clientv3.Op{put}, then...), []clientv3.Op{otherwise})
	if err != nil {
		a.unsure = a.unsure || !noLease(err)
		return nil, err
	}
	a.failed, a.trouble = time.Time{}, nil
	a.sent = sent || answer.Succeeded
	return answer, checkRevision(answer.Header.Revision)
}

// wait stands in the queue until the turn has come.
func (a *attempt) wait(ctx context.Context) (*lease, error) {
	ctx, cancel := a.s.within(ctx)
	defer cancel()
	w := &waiter{note: a.note, hint: make(chan struct{}, 1)}
	line, err := a.d.join(a.req.Name, w)
	if err != nil {
		return nil, err
	}
	defer line.leave(w)
	if err := line.ready(ctx, w); err != nil {
		return nil, err
	}
	if err := a.place(ctx); err != nil {
		return nil, err
	}
	a.queued = true
	line.stand(w, a.key, a.revision)
	for {
		v, err := line.look(w)
		switch {
		case err != nil:
			return nil, err
		case v == granted:
			return a.confirm(ctx)
		case v == gone:
			return nil, a.abandon()
		}
		select {
		case <-w.hint:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// place puts the key into the queue, unless it is there.
func (a *attempt) place(ctx context.Context) error {
	if a.revision > 0 {
		return nil
	}
	absent := clientv3.Compare(clientv3.CreateRevision(a.key), "=", 0)
	answer, err := a.send(ctx, absent, a.put(false), clientv3.OpGet(a.key))
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

// confirm takes the lock whose turn has come by the watch, if a majority of etcd still has the key. What a watch tells may be
// old: the lease may have ended in the meantime, and with it the key.
func (a *attempt) confirm(ctx context.Context) (*lease, error) {
	b := a.s.beat() // on the way at the same time
	if err := a.d.exists(ctx, a.key, a.revision); err != nil {
		if errors.Is(err, driver.ErrLost) {
			return nil, a.abandon()
		}
		return nil, err
	}
	return a.grant(ctx, b, false)
}

// abandon gives up a key that is no more, for another one.
func (a *attempt) abandon() error {
	if a.unsure {
		a.s.suspect(a.key)
	}
	a.key = ""
	return errAgain
}

// exists asks a majority whether a key is there; if not, the error matches ErrLost.
func (d *Driver) exists(ctx context.Context, key string, revision int64) error {
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

// grant makes a lease of the key, which holds.
func (a *attempt) grant(ctx context.Context, b *beat, noted bool) (*lease, error) {
	start, err := b.wait(ctx)
	if err != nil {
		return nil, err
	}
	h := &hold{
		d: a.d, s: a.s, req: a.req, note: a.note, key: a.key, nonce: a.nonce, revision: a.revision, block: blockOf(a.req), since: driver.Now(),
		noted: noted || a.req.MinHold > 0, // a note that comes late must not undo what MinHold does on release
		twice: a.unsure, turn: make(chan struct{}, 1),
	}
	if h.block > 1 {
		h.wanted = make(chan struct{})
		a.d.attend(h)
	}
	if err := a.s.adopt(h); err != nil {
		h.unattend()
		return nil, err
	}
	a.d.holds.add(h)
	return h.lease(a.req, start), nil
}

// withdraw leaves no key behind. It does not depend on the context of Acquire, which returns soon
// also if etcd does not answer. With the driver the session ends, and all its keys.
func (a *attempt) withdraw() {
	if a.key == "" || a.d.life.Over() {
		return
	}
	if !a.sent {
		a.takeBack()
		return
	}
	done := make(chan struct{})
	if !a.d.life.Go(func() { defer close(done); a.takeBack() }) {
		return
	}
	timer := time.NewTimer(withdrawal)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// takeBack deletes the key, if it may be there.
func (a *attempt) takeBack() {
	if a.sent {
		ctx, cancel := context.WithTimeout(a.d.life.Context(), longest)
		defer cancel()
		if _, err := a.d.client.Delete(ctx, a.key); err != nil || a.unsure {
			a.s.suspect(a.key)
			return
		}
	}
	if a.nonce != "" {
		a.d.nonces.give(a.nonce)
	}
}
