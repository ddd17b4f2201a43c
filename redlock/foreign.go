package redlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A foreignLease is a lease that another process may have acquired, known by its id. Each request
// first reads the lock, to learn the nonce of the round that won the lease, and then acts on keys
// with this nonce only. It is safe for concurrent use.
type foreignLease struct {
	d    *Driver
	lock lock
	id   string
	ttl  time.Duration

	mu    sync.Mutex
	freed bool // a release has freed the lease, or may have done so
}

// Lease returns the lease with an id on a lock, without a request to the nodes. Another process may
// have acquired it. The methods return [driver.ErrLost] if no majority has such a lease. Renewals
// are for the TTL, and never make the lease shorter.
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	return &foreignLease{d: d, lock: lockOf(name), id: id, ttl: min(max(ttl, minTTL), d.params.MaxTTL)}
}

// ID returns the id.
func (l *foreignLease) ID() string { return l.id }

// Grant implements [driver.Lease]. It knows neither when the lease was granted nor its tokens.
func (l *foreignLease) Grant() driver.Grant { return driver.Grant{} }

// Release implements [driver.Lease]. It frees the lock on a majority, or keeps it closed until the
// MinHold that was recorded with the grant is over.
func (l *foreignLease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, err := l.find(ctx)
	if err == nil {
		err = l.tell(ctx, codeFree, g, g.keep())
	}
	if err == driver.ErrLost { //nolint:errorlint // as find and tell return it
		if l.freed {
			return nil
		}
		return err
	}
	l.freed = l.freed || g != nil
	return err
}

// SetHolder implements [driver.Lease].
func (l *foreignLease) SetHolder(ctx context.Context, h driver.Holder) error {
	g, err := l.find(ctx)
	if err != nil {
		return err
	}
	req := g.request()
	req.Holder = h
	return l.tell(ctx, codeSetHolder, g, encodeHolder(&req, time.Now().UnixMicro()))
}

// renew extends the lease. It does not take a lock again that a node has forgotten, because it need
// not know the lease's token.
func (l *foreignLease) renew(ctx context.Context) driver.Renewal {
	g, err := l.find(ctx)
	if err != nil {
		return driver.Renewal{Err: err}
	}
	answer, cancel := context.WithTimeoutCause(ctx, l.d.conf.timeout, errOverdue)
	defer cancel()
	start := driver.Now()
	if err = l.tell(answer, codeExtend, g, rediskit.Millis(l.ttl), "0", ""); err != nil {
		return driver.Renewal{Err: err}
	}
	return driver.Renewal{Start: start}
}

// tell sends a command about a lease to all nodes, and returns when a majority has confirmed it.
func (l *foreignLease) tell(ctx context.Context, code byte, g *leaseVotes, args ...string) error {
	_, err := l.d.tell(ctx, l.d.allNodes(), driver.Now().Add(2*l.ttl), code, &l.lock,
		append([]string{g.nonce}, args...)...)
	return err
}

// find reads the lock. It returns [driver.ErrLost] if no majority can have a lease with the id.
func (l *foreignLease) find(ctx context.Context) (*leaseVotes, error) {
	s, err := l.d.readSnapshot(ctx, &l.lock)
	if err != nil {
		return nil, err
	}
	if g := s.lease(l.id); g != nil && g.ours && !g.kept {
		return g, nil
	}
	return nil, driver.ErrLost
}

// keep returns how long a release must keep the lock closed, in milliseconds. A node that has taken
// the lock again counts from then, and a clock may have been set, so the median counts.
func (h *leaseVotes) keep() string {
	slices.Sort(h.minHold)
	return rediskit.Millis(max(0, h.minHold[(len(h.minHold)-1)/2]))
}

// request returns a request with which the lease might have been acquired.
func (h *leaseVotes) request() driver.Request {
	return driver.Request{
		ID: h.holder.ID, Holder: h.holder.toDriver(), MinHold: millis(h.holder.MinHold),
		Tokens: int(min(h.holder.Tokens, driver.MaxTokens)), //nolint:gosec // it is small
	}
}
