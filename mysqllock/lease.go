package mysqllock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
)

// A lease is a hold's entry in its row, as we know it.
type lease struct {
	d     *Driver
	req   driver.Request
	nonce string // of the entry
	grant driver.Grant

	want sync.Once
	told chan struct{} // Grant.Wanted; nil if we can't tell

	dropped bool // the session must not keep the lock; guarded by session.mu

	mu    sync.Mutex
	ended bool // nothing is left to release
	err   error
}

// lease makes one of the entry that a request was granted.
func (a *attempt) lease(h entry, token uint64, start driver.Instant, strangers bool) *lease {
	l := &lease{d: a.d, req: a.req, nonce: h.Nonce, grant: driver.Grant{Token: token, Tokens: h.Tokens, Start: start}}
	if a.d.session != nil {
		l.grant.TTL = a.d.conf.idle
	}
	if h.Tell {
		l.told = make(chan struct{})
		l.grant.Wanted = l.told
		a.d.waits.tell(l)
		if strangers {
			l.wanted()
		}
	}
	return l
}

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// wanted tells the holder that another process waits.
func (l *lease) wanted() {
	if l.told != nil {
		l.want.Do(func() { close(l.told) })
	}
}

// drop removes the lease from the driver and its lock from the session. It fails if the session
// may still have the lock.
func (l *lease) drop(ctx context.Context) error {
	l.d.waits.untell(l)
	if s := l.d.session; s != nil {
		return s.unlock(ctx, l)
	}
	return nil
}

// lose ends the lease because the store said so.
func (l *lease) lose(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended, l.err = true, driver.ErrLost
	if l.req.OnLost != nil && why != nil {
		l.req.OnLost(why)
	}
}

// over reports whether the lease has ended, as far as we know.
func (l *lease) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// exclusive reports whether the hold stands in the columns of the only one.
func (l *lease) exclusive() bool { return !l.req.Shared && l.req.Slots == 0 }

// Release implements [driver.Lease]. If it fails, the driver retries in the background until it is
// closed.
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return l.err
	}
	ctx, cancel := life.Detached(ctx)
	defer cancel()
	leave, err := l.d.releasing.enter(ctx)
	freed := false
	if err == nil {
		freed, err = l.removeHold(ctx)
		leave()
	}
	if err != nil {
		l.d.waits.owe(l.d, l.nonce, l.finish, err)
		return err // as it is: the caller may say it again
	}
	l.ended = true
	if !freed {
		l.err = driver.ErrLost
	}
	return l.err
}

// finish completes a Release that has failed.
func (l *lease) finish(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	_, err := l.removeHold(ctx)
	if err == nil {
		l.ended = true
	}
	return err
}

// removeHold removes the session's lock and the hold in the row. freed reports whether the row
// had it.
func (l *lease) removeHold(ctx context.Context) (freed bool, err error) {
	if err := l.drop(ctx); err != nil {
		return false, err
	}
	return l.free(ctx)
}

// errUnconfirmed means that the hold is gone, and that the driver can't tell whether this release
// removed it, because an answer was lost, or whether it had ended before.
var errUnconfirmed = fmt.Errorf("%w: the answer to the release was lost", driver.ErrUnavailable)

// free takes the hold out of its row, and reports whether it was there.
func (l *lease) free(ctx context.Context) (freed bool, err error) {
	least, doubt := l.req.MinHold.Microseconds(), false
	if l.exclusive() {
		var out done
		out, err = l.d.exec(ctx, l.d.sql.let, least, least, least, least, []byte(l.req.Name), int64(l.grant.Token))
		freed, doubt = out.rows == 1, out.repeated
	} else {
		err = l.d.change(ctx, l.req.Name, func(s *state) (bool, error) {
			h := s.by(l.grant.Token)
			if freed, doubt = h != nil, s.doubt; !freed {
				return false, nil
			}
			h.Since = min(h.Since, s.now) // as the statement does
			if h.Until, h.Kept = h.Since+least, true; h.Until <= s.now {
				s.drop(l.grant.Token)
			}
			s.call()
			return true, nil
		})
	}
	if err == nil && !freed && doubt {
		err = errUnconfirmed
	}
	return freed, err
}

// Renew implements [driver.Driver]. Exclusive leases of a batch take one statement, and the others two.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	if len(due) == 0 {
		return answers
	}
	err := d.life.Ready(ctx, d.conf.err)
	inner, cancel := life.Detached(ctx)
	defer cancel()
	if err == nil {
		var leave func()
		if leave, err = d.renewing.enter(inner); err == nil {
			defer leave()
		}
	}
	var sole, several []renewal
	for i, one := range due {
		r := renewal{one.(*lease), &answers[i]}
		if r.exclusive() && d.session == nil {
			sole = append(sole, r)
		} else {
			several = append(several, r)
		}
	}
	answer := func(all []renewal, ask func(context.Context, []renewal) error) {
		slices.SortFunc(all, func(a, b renewal) int { return cmp.Compare(a.req.Name, b.req.Name) })
		for chunk := range slices.Chunk(all, sizes[len(sizes)-1]) {
			if err == nil {
				err = ask(inner, chunk)
			}
			for _, r := range chunk {
				if err != nil {
					*r.answer = driver.Renewal{Err: err}
				}
			}
		}
	}
	answer(sole, d.extend)
	answer(several, d.extendShared)
	return answers
}

// A renewal is one lease of a batch, and where its answer goes.
type renewal struct {
	*lease
	answer *driver.Renewal
}

// say answers.
func (r renewal) say(held bool, start driver.Instant) {
	if !held || r.over() {
		r.answer.Err = driver.ErrLost
		r.gone()
		return
	}
	r.answer.Start = start
}

// extend renews exclusive leases, in one statement if all are still held.
func (d *Driver) extend(ctx context.Context, all []renewal) error {
	n := size(len(all))
	var ttls, tokens, named []any
	for i := range n {
		r := all[min(i, len(all)-1)]
		name := []byte(r.req.Name)
		ttls = append(ttls, name, r.req.TTL.Microseconds())
		tokens = append(tokens, name, int64(r.grant.Token))
		named = append(named, name)
	}
	start := driver.Now()
	out, err := d.exec(ctx, forNames(d.sql.renew, n), slices.Concat(ttls, named, tokens)...)
	if err != nil {
		return err
	}
	if int(out.rows) == len(all) {
		for _, r := range all {
			r.say(true, start)
		}
		return nil
	}
	// Some are lost. Those that still stand there were renewed: what had ended by then has not begun again.
	found, err := d.read(ctx, namesOf(all))
	if err != nil {
		return err
	}
	for _, r := range all {
		s := found[r.req.Name]
		r.say(s != nil && s.by(r.grant.Token) != nil, start)
	}
	return nil
}

// extendShared renews leases beside which there may be others.
func (d *Driver) extendShared(ctx context.Context, all []renewal) error {
	if d.session != nil {
		return d.session.confirm(ctx, all)
	}
	for _, r := range all {
		held := false
		var start driver.Instant
		err := d.change(ctx, r.req.Name, func(s *state) (bool, error) {
			h := s.by(r.grant.Token)
			if held, start = h != nil, s.start; held {
				h.Until = s.now + r.req.TTL.Microseconds()
			}
			return held, nil
		})
		if err != nil {
			return err
		}
		r.say(held, start)
	}
	return nil
}

func namesOf(all []renewal) []string {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.req.Name
	}
	return names
}

// gone ends a lease that the store knows no more.
func (l *lease) gone() {
	l.lose(nil)
	l.forget()
}

// forget drops a lost lease in the background.
func (l *lease) forget() {
	l.d.waits.untell(l)
	if l.d.session == nil {
		return
	}
	l.d.life.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), life.Withdrawal, errNoAnswer)
		defer cancel()
		l.d.settle(ctx, l.nonce, l.drop)
	})
}
