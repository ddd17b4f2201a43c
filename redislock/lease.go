package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

	wanted   chan struct{}
	telling  sync.Once // closes wanted
	renewals atomic.Uint32

	mu       sync.Mutex
	released bool
}

// granted makes a lease of the rest of a grant's answer: its token, how many there are, and whether another process waits.
func (a *ask) granted(rest string) (*lease, error) {
	first, rest, _ := strings.Cut(rest, " ")
	count, wanted, _ := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the script granted the token %q", first)
	}
	tokens, err := strconv.Atoi(count)
	if err != nil {
		return nil, fmt.Errorf("the script granted %q tokens", count)
	}
	l := &lease{d: a.d, req: a.req, keys: a.keys, slot: a.slot, id: a.id, wanted: make(chan struct{})}
	l.grant = driver.Grant{Token: token, Tokens: tokens, Start: a.sent, Wanted: l.wanted}
	a.d.hold(l, a, wanted == "1")
	return l, nil
}

// tell tells the holder that another process waits.
func (l *lease) tell() { l.telling.Do(func() { close(l.wanted) }) }

// hold makes messages for what an ask was granted find the lease.
func (d *Driver) hold(l *lease, a *ask, wanted bool) {
	d.mu.Lock()
	d.leases[l.id] = l
	if wanted || a.wanted {
		l.tell()
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

// Lost implements [driver.Lease]: Redis says nothing of its own accord.
func (l *lease) Lost() <-chan error { return nil }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return nil
	}
	if l.d.life.Err() != nil {
		return driver.ErrClosed
	}
	l.d.forget(l)
	answer, err := l.giveUp(ctx)
	if err != nil {
		return err
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
	all := order{keys: &l.keys, code: "R", n: 2, args: [6]string{l.req.Owner, millis(l.req.MinHold)}}
	if !l.isWanted() && l.req.MinHold == 0 && mode(l.req) == "x" {
		quick := order{keys: &l.keys, code: "r", n: 1, args: [6]string{l.req.Owner}}
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
	batches := make(map[batch][]int) // places in due
	for i, l := range due {
		of := l.(*lease).batch()
		batches[of] = append(batches[of], i)
	}
	calls, places := make([]Call, 0, len(batches)), make([][]int, 0, len(batches))
	for of, at := range batches {
		calls = append(calls, d.renewal(of, due, at))
		places = append(places, at)
	}
	answers := make([]driver.Renewal, len(due))
	if len(calls) == 0 {
		return answers
	}
	sent := driver.Now()
	replies := d.ask(ctx, calls...)
	for i, at := range places {
		for n, place := range at {
			answers[place] = renewed(replies[i], n, len(at), sent)
			if errors.Is(answers[place].Err, driver.ErrLost) {
				d.forget(due[place].(*lease))
			}
		}
	}
	return answers
}

// A batch is what leases have in common that are renewed in one call: the slot, and the TTL if only the locks' keys are extended.
type batch struct {
	slot uint16
	ttl  time.Duration // 0 for renewScript
}

// batch says how to renew a lease this time. The record of an exclusive one lives for four TTLs and a minute, so half of that may go by
// until its turn.
func (l *lease) batch() batch {
	turn := uint32(6 + 3*30*time.Second/l.req.TTL) // of renewals, a third of a TTL apart
	if mode(l.req) != "x" || l.renewals.Add(1)%turn == 0 {
		return batch{slot: l.slot}
	}
	return batch{l.slot, l.req.TTL}
}

// renewal makes the call that extends the leases at the given places.
func (d *Driver) renewal(of batch, due []driver.Lease, at []int) Call {
	keys := append(make([]string, 0, 1+2*len(at)), d.sender.meta(of.slot))
	if of.ttl > 0 {
		args := append(make([]string, 0, 1+len(at)), millis(of.ttl))
		for _, place := range at {
			l := due[place].(*lease)
			keys, args = append(keys, l.keys[0]), append(args, l.req.Owner)
		}
		return Call{d.extender, keys, args}
	}
	args := make([]string, 0, 3*len(at))
	for _, place := range at {
		l := due[place].(*lease)
		code := "m"
		if mode(l.req) == "x" {
			code = "x"
		}
		keys, args = append(keys, l.keys[0], l.keys[1]), append(args, code, l.req.Owner, millis(l.req.TTL))
	}
	return Call{d.renewer, keys, args}
}

// renewed reads the answer for the n-th of a batch.
func renewed(r Reply, n, of int, sent driver.Instant) driver.Renewal {
	switch {
	case r.Err != nil:
		return driver.Renewal{Err: r.Err}
	case len(r.Lines) != 1 || len(r.Lines[0]) != of:
		return driver.Renewal{Err: fmt.Errorf("the script answered %q for %d leases", r.Lines, of)}
	case r.Lines[0][n] != '1':
		return driver.Renewal{Err: driver.ErrLost}
	}
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
