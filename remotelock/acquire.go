package remotelock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

const (
	// cleanupTimeout is how long a failed acquisition waits until the service has withdrawn it. The
	// withdrawal goes on in the background.
	cleanupTimeout = driver.CancelTimeout / 2

	// withdrawTimeout is how long a withdrawal goes on. The service keeps a place for 3 s without
	// its client, and a hold for its TTL.
	withdrawTimeout = 30 * time.Second

	// closeTimeout is the same once the driver was closed.
	closeTimeout = time.Second

	// minPoll is how long a request must have been open for its end to say that requests which wait
	// should wait for less.
	minPoll = time.Second

	// retryInterval is the pause between two requests that fail. That of withdrawals doubles.
	retryInterval = 200 * time.Millisecond
)

// An attempt is one call of Acquire.
type attempt struct {
	d       *Driver
	req     driver.Request
	msg     wire.Acquire
	servers []int         // that may have got a request, and to which a withdrawal must go
	current atomic.Int64  // the server that is asked first: a place that is left is in the way of others
	lost    bool          // the answer to a request may have been lost
	queued  bool          // the service has said that the lock is held, or the store full
	down    error         // why the last request that has ended got no answer; nil: it got one
	poll    time.Duration // how long a request waits once the attempt is queued
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	a := &attempt{d: d, req: req, down: driver.ErrUnavailable, poll: d.maxWait, msg: wire.Acquire{
		Name: req.Name, ID: req.ID, Brief: true, Process: processOf(req.Holder),
		TTL: wire.Millis(req.TTL), Shared: req.Shared, Slots: req.Slots, MinHold: wire.Millis(req.MinHold),
		Tokens: min(req.Tokens, wire.MaxTokens),
	}}
	a.current.Store(d.client.current.Load())
	l, err := a.run(ctx)
	if err == nil && ctx.Err() == nil {
		return l, nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if a.lost || a.queued || l != nil { // otherwise the service has nothing of it
		a.withdraw()
	}
	return nil, err
}

// run sends the request until it is granted, or fails.
func (a *attempt) run(ctx context.Context) (*lease, error) {
	wait := time.Duration(0)
	if !a.req.NoWait {
		wait = time.Millisecond // the first answer says soon whether the lock is held
	}
	for answered := driver.Now(); ; wait = a.poll {
		l, err := a.send(ctx, wait)
		switch {
		case err == nil && l != nil:
			return l, nil
		case err == nil: // it is queued
			a.queued, a.down = true, nil
			a.req.NoteWait(nil)
			answered = driver.Now()
			continue
		case ctx.Err() != nil:
			return nil, a.ended(ctx)
		case a.mayWaitFor(err):
			a.queued, answered = true, driver.Now()
		case !a.queued || !errors.Is(err, driver.ErrUnavailable) || driver.Now().Sub(answered) >= a.req.RetryLimit():
			return nil, err
		}
		a.down = err
		a.req.NoteWait(err)
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return nil, a.ended(ctx)
		}
	}
}

// mayWaitFor reports whether an error is a reason to wait, as a holder is: the store answers, but
// grants nothing after a restart, or has no connection left for a replica. The place lapses if the
// next request goes to another replica, which may have one.
func (a *attempt) mayWaitFor(err error) bool {
	var p *wire.Problem
	isGrace := errors.As(err, &p) && p.Kind() == wire.ProblemGrace
	isFull := errors.Is(err, driver.ErrFull) && a.req.RetryLimit() > time.Nanosecond
	return !a.req.NoWait && (isGrace || isFull)
}

// ended returns the error of an acquisition whose context is done. It matches ErrUnavailable unless
// the service was waiting for the lock: an outage is not a lock that is held.
func (a *attempt) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, driver.ErrClosed) || a.down == nil {
		return cause
	}
	return fmt.Errorf("%w: %w", a.down, cause)
}

// client returns the client for the next request. Once the lock is known to be held, requests share
// connections: thousands of them may wait, or be withdrawn at once.
func (a *attempt) client() *client {
	if a.queued {
		return a.d.waiting
	}
	return a.d.client
}

// send sends one request, which waits for that long. It returns nothing if the request is queued.
func (a *attempt) send(ctx context.Context, wait time.Duration) (*lease, error) {
	var granted *lease
	err := a.d.client.doFrom(ctx, &a.current, wait, func(ctx context.Context, server int) error {
		if !slices.Contains(a.servers, server) {
			a.servers = append(a.servers, server)
		}
		msg := a.msg
		msg.Wait = wire.Millis(wait)
		start := driver.Now()
		var answer wire.Granted
		status, err := a.client().post(ctx, server, wire.PathAcquire, msg, &answer)
		if err == nil && status == http.StatusOK && !strings.HasPrefix(answer.ID, a.msg.ID) {
			err = &attemptError{err: errNotOurs, sent: true}
		}
		a.lost = a.lost || mayBeDone(err)
		isCut := err != nil && !errors.As(err, new(*wire.Problem)) // maybe by a proxy, as it takes so long
		if open := driver.Now().Sub(start); isCut && a.queued && open >= minPoll {
			a.poll = min(a.poll, open/2)
		}
		if err == nil && status == http.StatusOK {
			granted = a.granted(start, &answer)
		}
		return err
	})
	return granted, err
}

// errNotOurs reports an answer that something between us and the service has made, or mixed up.
const errNotOurs driver.Sentinel = "a grant that is not the answer to this request"

// granted returns the lease of an answer to a request that was sent at start.
func (a *attempt) granted(start driver.Instant, answer *wire.Granted) *lease {
	g := driver.Grant{Token: answer.Token, Tokens: answer.Tokens, Start: start.Add(wire.Duration(max(answer.Waited, 0)))}
	if now := driver.Now(); now.Before(g.Start) { // the service's clock is faster than ours
		g.Start = start
	}
	if answer.TTL != a.msg.TTL {
		g.TTL = wire.Duration(answer.TTL)
	}
	return &lease{d: a.d, id: a.req.ID, ref: wire.Lease{Name: a.msg.Name, ID: answer.ID}, ttl: answer.TTL, grant: g}
}

// withdraw tells all servers that may know of the attempt that it was given up. It waits for
// cleanupTimeout at most.
func (a *attempt) withdraw() {
	done := make(chan struct{})
	a.d.working.Add(1) // Acquire has begun, so Close waits
	go func() {
		defer a.d.working.Done()
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
		defer cancel()
		stop := context.AfterFunc(a.d.ctx, func() { time.AfterFunc(closeTimeout, cancel) })
		defer stop()
		var all sync.WaitGroup
		for _, server := range a.servers { // at the same time: one may not answer at all
			all.Go(func() { a.withdrawFrom(ctx, server) })
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-time.After(cleanupTimeout):
	}
}

// withdrawFrom withdraws the attempt from one server, until that has answered or ctx is done.
func (a *attempt) withdrawFrom(ctx context.Context, server int) {
	closed := a.d.ctx.Done()
	for wait := retryInterval; ctx.Err() == nil; wait *= 2 { // in an outage, all attempts of all clients ask
		err := a.d.client.doOne(ctx, server, 0, 1, func(ctx context.Context, server int) error {
			msg := wire.Lease{Name: a.msg.Name, ID: a.msg.ID}
			_, err := a.client().post(ctx, server, wire.PathWithdraw, msg, nil)
			return err
		})
		var failed *attemptError
		if !errors.As(err, &failed) || !failed.sent && len(a.servers) > 1 { // the attempt went on elsewhere
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-closed: // there is only closeTimeout left
			closed, wait = nil, retryInterval/2
		}
	}
}
