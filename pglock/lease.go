package pglock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

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

	// Guarded by session.mu:
	asking  bool // the session has been asked for the lock
	dropped bool // it must not keep it

	turn sync.Mutex // to release

	mu        sync.Mutex
	granted   bool // Acquire is about to return it
	releasing bool // Release has been called: the end of the lease is no loss
	ended     bool // nothing is left to release
	err       error
}

// lease makes one of the entry that a request was granted.
func (a *attempt) lease(h *entry, start driver.Instant, s state) *lease {
	l := &lease{d: a.d, req: a.req, nonce: h.Nonce, grant: driver.Grant{Token: h.Token, Tokens: h.Tokens, Start: start}}
	if a.d.session != nil {
		l.grant.TTL = a.d.conf.idle
	}
	if h.Tell {
		l.told = make(chan struct{})
		l.grant.Wanted = l.told
		if s.strangers(h.Channel) {
			l.wanted()
		}
	}
	a.d.waits.tell(l)
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

// drop forgets what the driver keeps of a lease that is over, or that was not granted in the end.
func (l *lease) drop(ctx context.Context, granted bool) {
	l.d.waits.untell(l)
	if s := l.d.session; s != nil {
		s.unlock(ctx, l, granted)
	}
}

// grants says that Acquire is about to return the lease: from now on it can be lost.
func (l *lease) grants() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = true
}

// lose ends the lease because the store, or the session, has ended it, and tells so unless why is nil. It does nothing to a
// lease that was not granted in the end, and reports that.
func (l *lease) lose(why error) (granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.granted || l.ended || l.releasing {
		return l.granted
	}
	l.ended, l.err = true, driver.ErrLost
	if l.req.OnLost != nil && why != nil {
		l.req.OnLost(why)
	}
	return true
}

// broken ends a lease that is not in its row any more. It reports false if that was not granted yet.
func (l *lease) broken() bool {
	if !l.lose(fmt.Errorf("%w: it was broken, or its time was over", driver.ErrLost)) {
		return false
	}
	if l.over() {
		l.d.waits.untell(l)
		if l.d.session != nil {
			l.d.life.Go(func() { l.drop(context.Background(), true) })
		}
	}
	return true
}

// over reports whether the lease has ended, as far as we know.
func (l *lease) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	l.releasing = true
	ended, err := l.ended, l.err
	l.mu.Unlock()
	if ended {
		return err
	}
	ctx, cancel := life.Detached(ctx)
	defer cancel()
	l.drop(ctx, true)
	args := []any{l.req.Name, int64(l.grant.Token), l.req.Owner, l.req.MinHold.Microseconds()}
	freed, err := l.d.change(ctx, l.d.sql.let, args)
	if err == nil && !freed {
		freed, err = l.d.change(ctx, l.d.sql.release, args)
	}
	if err != nil {
		if l.d.session != nil {
			l.d.tidy(l.req.Name, l.nonce)
		}
		return err // as it is: the caller may say it again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if !freed {
		l.err = driver.ErrLost
	}
	return l.err
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	if len(due) == 0 {
		return answers
	}
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return failAll(answers, err)
	}
	inner, cancel := life.Detached(ctx)
	defer cancel()
	var names []string
	var tokens, ttls []int64
	for _, one := range due {
		l := one.(*lease)
		names = append(names, l.req.Name)
		tokens = append(tokens, int64(l.grant.Token))
		ttls = append(ttls, l.req.TTL.Microseconds())
	}
	held := map[string][]int64{}
	waited := map[string]bool{}
	start, err := d.extend(inner, names, tokens, ttls, func(rows pgx.Rows) error {
		var name string
		var tokens []int64
		var waiters bool
		err := rows.Scan(&name, &tokens, &waiters)
		held[name], waited[name] = tokens, waiters
		return err
	})
	if err != nil {
		return failAll(answers, err)
	}
	for i, one := range due {
		l := one.(*lease)
		if !slices.Contains(held[names[i]], tokens[i]) || l.over() {
			answers[i].Err = driver.ErrLost
			l.gone()
			continue
		}
		answers[i].Start = start
		if waited[names[i]] {
			l.wanted()
		}
	}
	return answers
}

// extend asks the server to let holds last, and returns the moment from which they do.
func (d *Driver) extend(ctx context.Context, names []string, tokens, ttls []int64, scan func(pgx.Rows) error) (driver.Instant, error) {
	sql := d.sql.renew
	start := driver.Now()
	if d.session != nil {
		sql = d.sql.confirm
		var err error
		if start, err = d.session.ping(ctx); err != nil {
			return start, err
		}
	}
	return start, d.query(ctx, sql, []any{names, tokens, ttls}, scan)
}

func failAll(answers []driver.Renewal, err error) []driver.Renewal {
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// gone ends a lease that the store knows no more.
func (l *lease) gone() {
	l.lose(nil)
	l.drop(context.Background(), true)
}
