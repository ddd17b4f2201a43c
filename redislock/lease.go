package redislock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A lease implements [driver.Lease].
type lease struct {
	*attempt // that was granted it
	grant    driver.Grant

	until      driver.Instant // when it is over unless it is renewed; guarded by Driver.mu
	wanted     atomic.Bool    // another process waits
	yieldTimer *time.Timer    // calls markWanted, too; nil without YieldToForeign

	releaseMu sync.Mutex
	released  bool // guarded by releaseMu
}

// newLease makes a lease from the rest of a grant's answer: the token, and whether another process
// waits.
func (a *attempt) newLease(rest string) (*lease, error) {
	first, wanted, _ := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(first, 10, 64)
	if err != nil || token < 1 || token >= maxToken {
		return nil, badAnswerf("the script granted the token %q", first)
	}
	l := &a.lease
	l.grant = driver.Grant{Token: token, Tokens: a.req.TokenBlock(), Start: a.sent, TellsWanted: true}
	a.d.addLease(l, wanted == "1")
	return l, nil
}

// maxToken is greater than all tokens: Lua does not represent greater integers exactly.
const maxToken = 1 << 53

// markWanted tells the holder that another process waits.
func (l *lease) markWanted() {
	if l.wanted.CompareAndSwap(false, true) && l.req.OnWanted != nil {
		l.req.OnWanted()
	}
}

// addLease routes messages for the attempt's request to l from now on, and verifies l if one that
// came before said that it may be broken. Wanted says that another process waits. A lease whose
// holder wants to be told nothing gets no messages: it may end elsewhere, and the driver would keep
// it for good.
func (d *Driver) addLease(l *lease, wanted bool) {
	if l.req.OnLost == nil && l.req.OnWanted == nil {
		return
	}
	d.mu.Lock()
	d.leases[l.id], l.until = l, l.grant.Start.Add(l.req.TTL)
	if every := d.conf.yieldEvery; every > 0 { // at its next multiple by the server's clock: a token is the time of its grant
		l.yieldTimer = time.AfterFunc(every-time.Duration(l.grant.Token)*time.Microsecond%every, l.markWanted)
	}
	if wanted {
		l.markWanted()
	}
	if l.maybeBroken {
		d.verifyLater(l)
	}
	d.mu.Unlock()
	d.listenForHolders()
}

// removeLease undoes addLease, and reports whether the driver remembered the lease.
func (d *Driver) removeLease(l *lease) (found bool) {
	d.mu.Lock()
	found = d.leases[l.id] == l
	delete(d.leases, l.id)
	d.mu.Unlock()
	if l.yieldTimer != nil {
		l.yieldTimer.Stop()
	}
	return found
}

// Lease returns the lease with the given id on a lock, without a request to the store. Another
// process may have acquired it. Renew, Release and SetHolder of it answer ErrLost if there is no
// such lease.
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	keys := d.conf.namespace.keysOf(name)
	return &lease{attempt: &attempt{d: d, req: driver.Request{Name: name, ID: id, TTL: ttl}, jsonID: encodeID(id),
		ttl: rediskit.Millis(ttl), keys: keys, slot: d.slot(keys[0])}}
}

// ID returns the id of the grant.
func (l *lease) ID() string { return l.req.ID }

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.releaseMu.Lock()
	defer l.releaseMu.Unlock()
	if l.released {
		return nil
	}
	l.d.removeLease(l)
	cmd := newCommand(&l.keys, codeRelease, l.jsonID, rediskit.Millis(l.d.conf.yieldEvery))
	// If a crash undid the release, MinHold would end with the lease. Only the store knows the MinHold
	// of a lease that another process has acquired.
	cmd.saved = l.req.MinHold > 0 || l.grant.Token == 0
	if err := l.d.sendUntilAnswered(ctx, l.slot, cmd); err != nil {
		return err
	}
	// If the answer to an earlier try was lost, that try freed the lock, or else the lease had
	// ended before. Nobody can tell which, and it does no harm: the core notices a loss by its
	// own clock.
	l.released = true
	if l.late {
		go l.withdrawAgain()
	}
	return nil
}

// SetHolder implements [driver.Lease].
func (l *lease) SetHolder(ctx context.Context, h driver.Holder) error {
	return l.d.sendUntilAnswered(ctx, l.slot,
		newCommand(&l.keys, codeSetHolder, l.jsonID, string(appendHolder(nil, &h))))
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := d.renew(ctx, due)
	for i, answer := range answers {
		l := due[i].(*lease)
		if errors.Is(answer.Err, driver.ErrLost) {
			d.removeLease(l)
		} else if answer.Err == nil {
			d.mu.Lock()
			l.until = answer.Start.Add(l.req.TTL)
			d.mu.Unlock()
		}
	}
	return answers
}

// renew asks the servers to extend leases. Each call has its own answer: a node of a Cluster that
// hangs must not keep us from hearing of the leases on the others.
func (d *Driver) renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	groups := make(map[uint16][]int) // by slot: indexes of due
	for i := range due {
		slot := due[i].(*lease).slot
		groups[slot] = append(groups[slot], i)
	}
	var calls sync.WaitGroup
	for _, group := range groups {
		for batch := range slices.Chunk(group, maxRenewals) {
			calls.Go(func() {
				err := d.renewBatch(ctx, due, batch, answers, false)
				if isMoving(err) || isForbidden(err) && len(batch) > 1 {
					d.renewEach(ctx, due, batch, answers)
				}
			})
		}
	}
	calls.Wait()
	return answers
}

// renewBatch renews the leases at the given indexes of due, which are of one slot, in one call, and
// returns the error of that. With lockOnly, the call names no keys but those of the locks.
func (d *Driver) renewBatch(ctx context.Context, due []driver.Lease, indexes []int, answers []driver.Renewal,
	lockOnly bool) error {
	keys := make([]string, 0, 2+2*len(indexes))
	args := append(make([]string, 0, 2+2*len(indexes)), d.sender.floor, d.sender.maxTTL)
	if slot := due[indexes[0]].(*lease).slot; !lockOnly {
		keys = append(keys, d.sender.metaKey(slot), d.sender.longLeasesKey(slot))
	}
	for _, index := range indexes {
		l := due[index].(*lease)
		keys = append(keys, l.keys[0])
		if !lockOnly {
			keys = append(keys, l.keys[1])
		}
		args = append(args, l.jsonID, l.ttl)
	}
	sent := driver.Now()
	reply, unsaved := evalSaved(ctx, d.eval, Call{Script: renewScript, Keys: keys, Args: args}, d.conf.durable)
	for n, index := range indexes {
		answers[index] = renewalResult(reply, unsaved, n, len(indexes), sent)
	}
	return reply.Err
}

// renewEach renews leases one by one: some have names that are forbidden to our user, or their slot
// is moving to another node of a Cluster, and keys that are on different nodes can't be used in one
// call. The key of an exclusive lock is on one node only, and will do until the move ends.
func (d *Driver) renewEach(ctx context.Context, due []driver.Lease, indexes []int, answers []driver.Renewal) {
	var calls sync.WaitGroup
	for _, index := range indexes {
		calls.Go(func() {
			err := d.renewBatch(ctx, due, []int{index}, answers, false)
			if isMoving(err) && due[index].(*lease).isExclusive() {
				_ = d.renewBatch(ctx, due, []int{index}, answers, true) // the answers have the error
			}
		})
	}
	calls.Wait()
}

// maxRenewals bounds the leases of one call.
const maxRenewals = 1000

// isExclusive reports whether the lease is known to be exclusive: of a lease that another process
// has acquired, only the store knows.
func (l *lease) isExclusive() bool { return mode(l.req) == modeExclusive && l.grant.Token != 0 }

// renewalResult reads the answer for the n-th lease of a batch of the given size.
func renewalResult(r Reply, unsaved error, n, size int, sent driver.Instant) driver.Renewal {
	switch {
	case r.Err != nil:
		return driver.Renewal{Err: r.Err}
	case len(r.Lines) == 0 || len(r.Lines) > 2 || len(r.Lines[0]) != size:
		return driver.Renewal{Err: badAnswerf("the script answered %q for %d leases", r.Lines, size)}
	case r.Lines[0][n] == 'x' && len(r.Lines) == 2:
		return driver.Renewal{Err: asUnavailable(&ReplyError{Text: r.Lines[1]})}
	case r.Lines[0][n] != '1':
		return driver.Renewal{Err: driver.ErrLost}
	case unsaved != nil:
		return driver.Renewal{Err: unsaved}
	}
	return driver.Renewal{Start: sent}
}

// eval runs scripts, and returns when ctx is done even if the client does not. Errors that a later
// call may not see match [driver.ErrUnavailable].
func (d *Driver) eval(ctx context.Context, calls ...Call) []Reply {
	done := make(chan []Reply, 1)
	go func() { done <- d.conn.Eval(ctx, calls...) }()
	replies := make([]Reply, len(calls))
	select {
	case replies = <-done:
	case <-ctx.Done():
		for i := range replies {
			replies[i].Err = context.Cause(ctx)
		}
	}
	for i := range replies {
		replies[i].Err = asUnavailable(replies[i].Err)
	}
	return replies
}
