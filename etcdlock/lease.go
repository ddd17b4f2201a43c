package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
)

// batch is how many keys are asked for in one transaction: etcd allows 128 operations by default, and counts those within
// them too.
const batch = 100

// A hold is a key that holds a lock, as we know it. More than one lease has it if its owner has asked again.
type hold struct {
	d        *Driver
	s        *session
	req      driver.Request
	note     note
	key      string
	nonce    string // in the key
	revision int64
	block    int            // how many tokens are reserved
	since    driver.Instant // of the grant, or later
	twice    bool           // a request that was given up may put the key again when it is deleted
	turn     chan struct{}  // of one: who has it may release

	wanted chan struct{} // Grant.Wanted; nil for one token, since there is nothing to hand over then
	want   sync.Once     // closes wanted
	line   *line         // that tells of others; nil if it does not
	watch  int64         // of its key, see watched; 0 for none; guarded by session.mu
	quiet  bool          // nobody is told any more that its key is gone; guarded by session.mu

	mu     sync.Mutex
	leases []*lease
	noted  bool // people can see since when it is held
	unsure bool // a release was not answered
	ended  bool
	err    error // of Release, when it has ended
}

// holds are those of a driver.
type holds struct {
	mu     sync.Mutex
	byName map[string][]*hold
}

func (all *holds) add(h *hold) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byName[h.req.Name] = append(all.byName[h.req.Name], h)
}

func (all *holds) remove(h *hold) {
	all.mu.Lock()
	defer all.mu.Unlock()
	rest := slices.DeleteFunc(all.byName[h.req.Name], func(other *hold) bool { return other == h })
	if len(rest) == 0 {
		delete(all.byName, h.req.Name)
		return
	}
	all.byName[h.req.Name] = rest
}

// find returns the hold of a name of which is says that it is the one, or nil.
func (all *holds) find(name string, is func(*hold) bool) *hold {
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := slices.IndexFunc(all.byName[name], is); i >= 0 {
		return all.byName[name][i]
	}
	return nil
}

// of returns what the owner of a request holds already, or nil.
func (all *holds) of(req driver.Request) *hold {
	return all.find(req.Name, func(h *hold) bool {
		return h.req.Owner == req.Owner && h.req.Shared == req.Shared && h.req.Slots == req.Slots
	})
}

// IsOwner returns a comparison for a transaction of etcd that holds as long as the hold with this token does: the data that
// the transaction writes are written under the lock, or not at all, whatever the clocks do.
//
//	answer, err := client.Txn(ctx).If(d.IsOwner(lock.Name(), lock.Token())).Then(puts...).Commit()
//	// !answer.Succeeded: the lock was lost
//
// Holds that pass from one goroutine to the next within a process have one key, and are one to IsOwner: it does not keep out who goes on
// to write after a release of their own. For a hold that this driver does not have, the comparison never holds.
func (d *Driver) IsOwner(name string, token uint64) clientv3.Cmp {
	h := d.holds.find(name, func(h *hold) bool { return h.has(token) })
	if h == nil {
		return clientv3.Compare(clientv3.CreateRevision(prefixOf(name)), "<", 0)
	}
	return isKey(h.key, h.revision)[0]
}

// has reports whether a token is one of the hold's.
func (h *hold) has(token uint64) bool {
	first := tokenOf(h.revision)
	return first <= token && token-first < uint64(h.block)
}

// A lease is what one Acquire was given of a hold.
type lease struct {
	hold   *hold
	grant  driver.Grant
	onLost func(error) // Request.OnLost
}

// lease makes one more lease of the hold, for a request, on a session that lives from start on.
func (h *hold) lease(req driver.Request, start driver.Instant) *lease {
	l := &lease{hold: h, onLost: req.OnLost, grant: driver.Grant{
		Token: tokenOf(h.revision), Tokens: min(h.block, blockOf(req)), Start: start, TTL: h.s.ttl, Wanted: h.wanted,
	}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		l.lose(fmt.Errorf("%w: it ended as it was granted", driver.ErrLost))
	}
	h.leases = append(h.leases, l)
	return l
}

// Grant implements [driver.Lease]. Its TTL is that of the session.
func (l *lease) Grant() driver.Grant { return l.grant }

// lose tells the holder.
func (l *lease) lose(why error) {
	if l.onLost != nil {
		l.onLost(why)
	}
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error { return l.hold.release(ctx) }

// lose ends the hold because etcd or the session said so.
func (h *hold) lose(why error) {
	if !errors.Is(why, driver.ErrLost) {
		why = fmt.Errorf("%w: %w", driver.ErrLost, why)
	}
	for _, l := range h.finish(driver.ErrLost) {
		l.lose(why)
	}
	if h.twice {
		h.sweepLater()
	}
}

// finish ends the hold. It returns the leases that it had, if it had not ended before.
func (h *hold) finish(err error) []*lease {
	h.forget()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil
	}
	h.ended, h.err = true, err
	return h.leases
}

// tellWanted tells the holder that another process waits.
func (h *hold) tellWanted() { h.want.Do(func() { close(h.wanted) }) }

// forget forgets what the driver keeps of the hold.
func (h *hold) forget() {
	h.unattend()
	h.s.drop(h)
	h.d.holds.remove(h)
}

// over reports whether the hold has ended, as far as we know, and what Release says then.
func (h *hold) over() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended, h.err
}

// confirm asks a majority whether the hold is there.
func (h *hold) confirm(ctx context.Context) error { return h.d.exists(ctx, h.key, h.revision) }

// release gives the hold up, trying again while ctx lives. What etcd may not have heard of in the end is swept up later: it
// would not lapse while the session lives.
func (h *hold) release(ctx context.Context) error {
	h.unattend() // nothing will be handed over any more
	h.s.hush(h)
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for {
		if ended, err := h.over(); ended {
			return err
		}
		err := h.leave(ctx)
		if err == nil || errors.Is(err, driver.ErrLost) {
			h.finish(err)
			switch {
			case h.twice:
				h.sweepLater()
			case err == nil && !h.unsure && h.req.MinHold == 0: // the key is gone for good
				h.d.nonces.give(h.nonce)
			}
			continue
		}
		if ctx.Err() == nil && passing(err) {
			select {
			case <-time.After(retryAfter):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		h.d.holds.remove(h) // its owner can't count on it any more
		h.sweepLater()
		return explain(err)
	}
}

// sweepLater has the key deleted once more, when MinHold is over.
func (h *hold) sweepLater() { time.AfterFunc(h.kept(), func() { h.s.suspect(h.key) }) }

// kept returns for how long MinHold keeps the lock taken yet.
func (h *hold) kept() time.Duration { return max(0, h.since.Add(h.req.MinHold).Left(driver.Now())) }

// leave asks etcd once to end the hold.
func (h *hold) leave(ctx context.Context) error {
	var there bool
	var err error
	if left := h.kept(); left > 0 {
		there, err = h.leaveIn(ctx, left)
	} else {
		there, err = h.delete(ctx)
	}
	switch {
	case err != nil:
		return err
	case !there && !h.unsure:
		return errKeyGone
	}
	return nil
}

// delete deletes the key, and reports whether it was there. Nobody else puts this key, so that it need not be compared; but a
// request of ours that was given up may have put it anew after the hold was lost.
func (h *hold) delete(ctx context.Context) (there bool, err error) {
	defer func() { h.unsure = h.unsure || err != nil }() // guarded by the turn
	if h.twice {
		answer, err := h.d.commit(ctx, isKey(h.key, h.revision), []clientv3.Op{clientv3.OpDelete(h.key)}, nil)
		return err == nil && answer.Succeeded, err
	}
	answer, err := call(ctx, h.d, func(ctx context.Context) (*clientv3.DeleteResponse, error) {
		return h.d.client.Delete(ctx, h.key)
	})
	return err == nil && answer.Deleted > 0, err
}

// leaveIn leaves the key there for a while, for MinHold, and reports whether it was there.
func (h *hold) leaveIn(ctx context.Context, left time.Duration) (there bool, err error) {
	keeper, err := call(ctx, h.d, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return h.d.client.Grant(ctx, int64((left+time.Second-1)/time.Second))
	})
	if err != nil {
		return false, err
	}
	put := clientv3.OpPut(h.key, h.note.text(true), clientv3.WithLease(keeper.ID))
	answer, err := h.d.commit(ctx, isKey(h.key, h.revision), []clientv3.Op{put}, nil)
	if err != nil {
		h.unsure = true // guarded by the turn
		return false, err
	}
	// etcd counts in seconds, and from two of them on: we end it in time.
	time.AfterFunc(h.kept(), func() { h.d.life.Go(func() { h.d.revoke(keeper.ID) }) })
	return answer.Succeeded, nil
}

// Renew implements [driver.Driver]. One keep-alive is for all leases; beside it etcd is asked whether their keys are there.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	var holds []*hold
	places := map[*hold]int{} // in holds: it is asked for once, however many leases it has
	for i, one := range due {
		h := one.(*lease).hold
		if ended, _ := h.over(); ended || ctx.Err() != nil {
			answers[i].Err = driver.ErrLost
			if !ended {
				answers[i].Err = context.Cause(ctx)
			}
			continue
		}
		if _, known := places[h]; !known {
			places[h], holds = len(holds), append(holds, h)
		}
	}
	if len(holds) == 0 {
		return answers
	}
	b := d.session.Load().beat() // the holds of an earlier one are lost
	errs := d.confirm(ctx, holds)
	start, err := b.wait(ctx)
	for i, one := range due {
		h := one.(*lease).hold
		switch over := h.s.lost(); {
		case answers[i].Err != nil: // it was not asked for
		case errs[places[h]] != nil:
			answers[i].Err = errs[places[h]]
		case over != nil:
			answers[i].Err = over
		case err != nil:
			answers[i].Err = err
		default:
			answers[i].Start = start
		}
		if errors.Is(answers[i].Err, driver.ErrLost) {
			h.lose(answers[i].Err)
		}
	}
	return answers
}

// confirm asks whether holds are there, and gives one answer for each.
func (d *Driver) confirm(ctx context.Context, holds []*hold) []error {
	errs := make([]error, len(holds))
	for from := 0; from < len(holds); from += batch {
		some := holds[from:min(from+batch, len(holds))]
		ops := make([]clientv3.Op, len(some))
		for i, h := range some {
			ops[i] = h.question()
		}
		answer, err := d.commit(ctx, nil, ops, nil)
		for i, h := range some {
			if err != nil {
				errs[from+i] = err
			} else if !h.answered(answer.Responses[i]) {
				errs[from+i] = errKeyGone
			}
		}
	}
	return errs
}

// question asks whether the hold is there. If it has waited, and nobody could know when it would be granted, it is noted for
// people that it was.
func (h *hold) question() clientv3.Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.noted {
		return clientv3.OpGet(h.key, clientv3.WithKeysOnly())
	}
	n := h.note
	n.Asked = time.Now().Add(-driver.Now().Sub(h.since)).UnixMilli()
	return clientv3.OpTxn(isKey(h.key, h.revision), []clientv3.Op{clientv3.OpPut(h.key, n.text(true), clientv3.WithLease(h.s.id))}, nil)
}

// answered takes the answer to the question.
func (h *hold) answered(answer *etcdserverpb.ResponseOp) bool {
	if txn := answer.GetResponseTxn(); txn != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.noted = h.noted || txn.Succeeded
		return txn.Succeeded
	}
	return h.isIn(answer.GetResponseRange())
}

// isIn reports whether a look at the key has found the one of the hold.
func (h *hold) isIn(found *etcdserverpb.RangeResponse) bool {
	kvs := found.GetKvs()
	return len(kvs) == 1 && kvs[0].CreateRevision == h.revision
}
