package redislock

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// A lease is one grant.
type lease struct {
	d     *Driver
	req   driver.Request
	keys  [4]string
	slot  uint16
	id    uint64
	grant driver.Grant

	wanted  chan struct{}
	telling sync.Once // closes wanted

	releasing sync.Mutex
	released  bool // guarded by releasing

	mu       sync.Mutex
	until    driver.Instant // when it is over by our clock
	renewals uint32         // since the record was extended; guarded by mu, as is until
}

// granted makes a lease of the rest of a grant's answer: its token, how many there are, and whether another process waits.
func (a *ask) granted(rest string) (*lease, error) {
	first, rest, _ := strings.Cut(rest, " ")
	count, wanted, _ := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(first, 10, 64)
	if err != nil || token < 1 || token >= maxToken {
		return nil, answeredf("the script granted the token %q", first)
	}
	tokens, err := strconv.Atoi(count)
	if err != nil || tokens < 1 {
		return nil, answeredf("the script granted %q tokens", count)
	}
	tokens = min(tokens, blockOf(a.req)) // an earlier request of the owner may have asked for more
	l := &lease{d: a.d, req: a.req, keys: a.keys, slot: a.slot, id: a.id, wanted: make(chan struct{})}
	l.grant = driver.Grant{Token: token, Tokens: tokens, Start: a.sent, Wanted: l.wanted}
	l.extend(a.sent, false)
	a.d.hold(l, a, wanted == "1")
	return l, nil
}

// maxToken is above all tokens: Lua counts no further exactly.
const maxToken = 1 << 53

// tell tells the holder that another process waits.
func (l *lease) tell() { l.telling.Do(func() { close(l.wanted) }) }

// hold makes messages for what an ask was granted find the lease.
func (d *Driver) hold(l *lease, a *ask, wanted bool) {
	d.mu.Lock()
	d.leases[l.id] = l
	if wanted || a.wanted {
		l.tell()
	}
	if a.doubted {
		d.doubt(l)
	}
	d.mu.Unlock()
	d.listener.holding()
}

func (d *Driver) forget(l *lease) {
	d.mu.Lock()
	delete(d.leases, l.id)
	d.mu.Unlock()
}

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if l.released {
		return nil
	}
	if l.d.life.Err() != nil {
		return driver.ErrClosed
	}
	l.d.forget(l)
	answer, err := l.giveUp(ctx)
	if err != nil {
		return unavailable(err)
	}
	if answer == "l" {
		return driver.ErrLost
	}
	// If the answer to a first try was lost, that try freed the lock, or else it had ended: nobody can tell, and nobody is the
	// worse for it, as the core tells of a loss by its own clock.
	l.released = true
	return nil
}

// giveUp frees the lock: at once if nobody waits for it, or else by handing it over.
func (l *lease) giveUp(ctx context.Context) (answer string, err error) {
	token := strconv.FormatUint(l.grant.Token, 10)
	all := order{keys: &l.keys, code: "R", n: 3, args: [6]string{l.req.Owner, millis(l.req.MinHold), token}}
	if !l.isWanted() && l.req.MinHold == 0 && mode(l.req) == "x" && !l.d.isLong(l.req.TTL) {
		quick := order{keys: &l.keys, code: "r", n: 2, args: [6]string{l.req.Owner, token}}
		if answer, err = l.d.insist(ctx, l.slot, &quick); err != nil || answer != "?" {
			return answer, err
		}
		all.doubt = quick.doubt
	}
	return l.d.insist(ctx, l.slot, &all)
}

func (l *lease) isWanted() bool {
	select {
	case <-l.wanted:
		return true
	default:
		return false
	}
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	sent := driver.Now()
	answers := make([]driver.Renewal, len(due))
	batches := make(map[batch][]int) // places in due
	for i := range due {
		l := due[i].(*lease)
		of, over := l.batch(sent)
		if over { // its key may be that of a later hold of the same owner
			answers[i].Err = driver.ErrLost
			d.forget(l)
			continue
		}
		for len(batches[of]) >= maxRenewals {
			of.part++
		}
		batches[of] = append(batches[of], i)
	}
	calls, places := make([]Call, 0, len(batches)), make([][]int, 0, len(batches))
	for of, at := range batches {
		calls, places = append(calls, d.renewal(of, due, at)), append(places, at)
	}
	if len(calls) == 0 {
		return answers
	}
	replies := d.ask(ctx, calls...)
	for i, at := range places {
		for n, place := range at {
			answers[place] = d.renewed(due[place].(*lease), replies[i], n, len(at), sent, calls[i].Script == d.renewer)
		}
		if isMoving(replies[i].Err) {
			d.renewEach(ctx, calls[i].Script == d.renewer, due, at, answers)
		}
	}
	return answers
}

// renewEach renews leases one by one whose slot is on its way to another node of a Cluster, where those keys can't be used together that
// are on different sides. It tries again until all are answered, or ctx is done.
func (d *Driver) renewEach(ctx context.Context, record bool, due []driver.Lease, at []int, answers []driver.Renewal) {
	for pause := time.Millisecond; len(at) > 0 && ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		sent := driver.Now()
		calls := make([]Call, len(at))
		for i, place := range at {
			l := due[place].(*lease)
			of := batch{slot: l.slot, ttl: l.req.TTL}
			if record && mode(l.req) != "x" {
				of.ttl = 0
			} // else the key of the lock alone will do for now: it is on one side only
			calls[i] = d.renewal(of, due, []int{place})
		}
		var left []int
		for i, r := range d.ask(ctx, calls...) {
			answers[at[i]] = d.renewed(due[at[i]].(*lease), r, 0, 1, sent, false)
			if isMoving(r.Err) {
				left = append(left, at[i])
			}
		}
		if at = left; len(at) > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}
}

// maxRenewals bounds a call.
const maxRenewals = 1000

// A batch is what leases have in common that are renewed in one call: the slot, and the TTL if only the locks' keys are extended.
type batch struct {
	slot uint16
	ttl  time.Duration // 0 for renewScript
	part int
}

// batch says how to renew a lease this time, or that it is over. The record of an exclusive one lives for four TTLs and a minute, so half
// of that may go by until its turn.
func (l *lease) batch(now driver.Instant) (of batch, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	turn := uint32(6 + 3*30*time.Second/l.req.TTL) // of renewals, a third of a TTL apart
	if mode(l.req) != "x" || l.renewals >= turn || l.d.isLong(l.req.TTL) {
		return batch{slot: l.slot}, l.until.Reached(now)
	}
	return batch{slot: l.slot, ttl: l.req.TTL}, l.until.Reached(now)
}

// extend notes that the lease lasts its TTL from start, and whether its record does.
func (l *lease) extend(start driver.Instant, record bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = start.Add(l.req.TTL)
	l.renewals++
	if record {
		l.renewals = 0
	}
}

// renewal makes the call that extends the leases at the given places.
func (d *Driver) renewal(of batch, due []driver.Lease, at []int) Call {
	keys := make([]string, 0, 2+2*len(at))
	if of.ttl > 0 {
		args := append(make([]string, 0, 1+len(at)), millis(of.ttl))
		for _, place := range at {
			l := due[place].(*lease)
			keys, args = append(keys, l.keys[0]), append(args, l.req.Owner)
		}
		return Call{d.extender, keys, args}
	}
	keys = append(keys, d.sender.meta(of.slot), d.sender.long(of.slot))
	args := append(make([]string, 0, 2+4*len(at)), d.sender.floor, d.sender.max)
	for _, place := range at {
		l := due[place].(*lease)
		keys = append(keys, l.keys[0], l.keys[1])
		args = append(args, value(l.req), l.req.Owner, strconv.FormatUint(l.grant.Token, 10), millis(l.req.TTL))
	}
	return Call{d.renewer, keys, args}
}

// value is what the lock's key holds during a hold.
func value(req driver.Request) string {
	switch {
	case req.Slots > 0:
		return "snib:slots:" + strconv.Itoa(req.Slots)
	case req.Shared:
		return "snib:shared"
	}
	return req.Owner
}

// renewed reads the answer for a lease, the n-th of a batch.
func (d *Driver) renewed(l *lease, r Reply, n, of int, sent driver.Instant, record bool) driver.Renewal {
	switch {
	case r.Err != nil:
		return driver.Renewal{Err: r.Err}
	case len(r.Lines) != 1 || len(r.Lines[0]) != of:
		return driver.Renewal{Err: answeredf("the script answered %q for %d leases", r.Lines, of)}
	case r.Lines[0][n] != '1':
		d.forget(l)
		return driver.Renewal{Err: driver.ErrLost}
	}
	l.extend(sent, record)
	return driver.Renewal{Start: sent}
}

// ask evaluates a script, and returns when ctx is done even if the client does not.
func (d *Driver) ask(ctx context.Context, calls ...Call) []Reply {
	done := make(chan []Reply, 1)
	go func() { done <- d.conn.Eval(ctx, calls...) }()
	select {
	case replies := <-done:
		return replies
	case <-ctx.Done():
		replies := make([]Reply, len(calls))
		for i := range replies {
			replies[i].Err = context.Cause(ctx)
		}
		return replies
	}
}
