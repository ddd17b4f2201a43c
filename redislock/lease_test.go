package redislock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestForgottenLease checks that the driver remembers no lease whose holder wants to be told
// nothing, as those of a lock service: it may lapse, or be released elsewhere. Nor does it remember
// one that is over and that nobody releases.
func TestForgottenLease(t *testing.T) {
	t.Parallel()
	d := open(t, at(used(t, redistest.Single(t)).Addr()))
	req := request("job", "id", time.Minute)
	l := take(t, d, req)
	if redislock.HasLeases(d) {
		t.Error("the driver remembers a lease that nobody wants to be told of")
	}
	free(t, d.Lease("job", l.ID(), time.Minute))
	req.ID, req.OnLost = "told", func(error) {}
	l = take(t, d, req)
	if !redislock.HasLeases(d) {
		t.Error("the driver does not remember a lease whose loss it must tell")
	}
	if r := d.Renew(t.Context(), []driver.Lease{l})[0]; r.Err != nil || redislock.Until(l) != r.Start.Add(time.Minute) {
		t.Errorf("after the renewal %+v, the driver remembers the lease until %+v", r, redislock.Until(l))
	}
	free(t, l)
	req.ID, req.TTL = "over", ttl
	take(t, d, req)
	livetest.Await(t, "end of a lease that nobody releases", func() error {
		if redislock.HasLeases(d) {
			return errors.New("the driver remembers it")
		}
		return nil
	})
}

// TestRenewalOfReplacedHold deletes the key of an exclusive hold, and another takes the lock, in
// each mode. The first holder is told at its next renewal that it has lost the lock.
func TestRenewalOfReplacedHold(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for _, mode := range modes {
		l := take(t, d, request(mode.name, "first", floor)) // not long: see longlease.lua
		node.Must("DEL", mode.name)
		other := take(t, d, mode.as(request(mode.name, "second", time.Minute)))
		if err := renew(t, d, l); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: Renew = %v, want ErrLost", mode.name, err)
		}
		free(t, other)
	}
}

// A lateConn subscribes to nothing before the channel is closed.
type lateConn struct {
	redislock.Conn
	open <-chan struct{}
}

func (c lateConn) Subscribe(ctx context.Context, channel string, sharded bool, ready func(),
	message func(string)) error {
	select {
	case <-c.open:
		return c.Conn.Subscribe(ctx, channel, sharded, ready, message)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestWantedBeforeListening lets another process begin to wait before the holder's process listens.
// The holder is told as soon as it does, and not only by the waiter's next heartbeat.
func TestWantedBeforeListening(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode lockMode) {
		node := used(t, redistest.Single(t))
		subscribe := make(chan struct{})
		d := openOn(t, node, func(inner redislock.Conn) redislock.Conn { return lateConn{inner, subscribe} })
		req := mode.as(request("job", "holder", time.Hour))
		req.Tokens = 2
		if req.Slots > 0 {
			req.Slots = 1
		}
		waiter := req
		waiter.ID, waiter.Shared = "waiter", false
		req, wanted := livetest.WithWanted(req)
		l := take(t, d, req)
		proxy := livetest.NewProxy(t, node.Addr())
		waiting := wait(t, open(t, at(proxy.Addr())), waiter, 1)
		heal := proxy.Sever() // it loses the heartbeats
		close(subscribe)
		awaitClosed(t, wanted, "OnWanted")
		heal()
		free(t, l)
		granted(t, waiting, enough, "the waiter")
	})
}

// A movingConn is to a server that refuses calls as a node does whose slot is half moved, and the
// names of others: it has one key of each lock, and looks at the rights first.
type movingConn struct{ redislock.Conn }

func (c movingConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	switch keys := calls[0].Keys; {
	case slices.Contains(keys, "theirs"):
		return []redislock.Reply{{Err: &redislock.ReplyError{Text: "NOPERM No permissions to access a key"}}}
	case len(keys) > 1:
		return []redislock.Reply{{Err: &redislock.ReplyError{Text: "TRYAGAIN Multiple keys request during rehashing of slot"}}}
	}
	return c.Conn.Eval(ctx, calls...)
}

// TestRenewBesideForbiddenName renews a lease together with one whose name is forbidden, while the
// slot of both is half moved.
func TestRenewBesideForbiddenName(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	ours, theirs := take(t, d, request("ours", "holder", time.Minute)), take(t, d, request("theirs", "holder", time.Minute))
	moving := openOn(t, node, func(c redislock.Conn) redislock.Conn { return movingConn{c} })
	r := moving.Renew(t.Context(), []driver.Lease{theirs, ours})
	if r[0].Err == nil || errors.Is(r[0].Err, driver.ErrLost) || r[1].Err != nil {
		t.Errorf("Renew = %v for the forbidden one, %v for the other; want an error and none", r[0].Err, r[1].Err)
	}
}
