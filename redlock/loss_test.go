package redlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// A lease that a majority has ended does not stay on the other nodes, which would have no vote
// for anybody else until its TTL ends.
func TestLostLeavesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	l := acquire(t, d, request("x", "o", time.Minute))
	c.awaitKeys(t, "x")
	for _, n := range c.nodes[:2] {
		n.Must("SET", "x", "a stranger's", "PX", time.Minute.Milliseconds())
	}
	if err := renew(t, d, l); !errors.Is(err, driver.ErrLost) {
		t.Fatalf("Renew of a lease that a majority has ended = %v, want ErrLost", err)
	}
	awaitNoKeys(t, c.nodes[2])
}

// A holder learns of a Break even while a minority of the nodes hangs, or has lost its
// connections to the holder.
func TestBreakTellsHolder(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	c.init(t)
	servers, proxies := c.detour(t)
	d, people := open(t, servers), open(t, c.servers)
	lost := make(chan error, 1)
	hold := func(name string) driver.Lease {
		req := request(name, "o", time.Minute)
		req.OnLost = func(err error) { lost <- err }
		return acquire(t, d, req)
	}
	checkBreak := func(what string, l driver.Lease, name string) {
		t.Helper()
		if err := breakHold(t, people, name, l.ID()); err != nil {
			t.Fatalf("Break = %v", err)
		}
		select {
		case err := <-lost:
			if !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s, OnLost was called with %v, want ErrLost", what, err)
			}
		case <-time.After(testTimeout): // the lease lasts a minute
			t.Fatalf("%s, OnLost was not called", what)
		}
	}
	awaitOnAll := func(l driver.Lease, name string) {
		t.Helper()
		livetest.Await(t, "lease on all nodes", func() error {
			if err := renew(t, d, l); err != nil {
				return err
			}
			for i, n := range c.nodes {
				if !slices.Contains(keysOn(t, n), name) {
					return fmt.Errorf("it is not on node %d", i)
				}
			}
			return nil
		})
	}
	checkBreak("after a Break at once", hold("x"), "x")
	l := hold("y")
	awaitOnAll(l, "y") // else fewer than a majority of its nodes could tell
	heal := livetest.All(proxies[:2], (*livetest.Proxy).Sever)
	checkBreak("with two of five nodes cut off from the holder", l, "y")
	heal()
	l = hold("z")
	awaitOnAll(l, "z")
	c.nodes[3].Hang()
	c.nodes[4].Hang()
	checkBreak("with two of five nodes hung", l, "z")
	c.nodes[3].Resume()
	c.nodes[4].Resume()
}

// holdAndListen acquires the lock x by a driver of its own, and waits until the driver listens to
// all nodes. It returns the nonce of the lease, and the channel of the driver.
func (c *cluster) holdAndListen(t *testing.T, ttl time.Duration) (
	d *redlock.Driver, l driver.Lease, lost chan error, nonce, channel string,
) {
	t.Helper()
	c.init(t)
	d, lost = open(t, c.servers), make(chan error, 1)
	req := request("x", "o", ttl)
	req.OnLost = func(err error) { lost <- err }
	l = acquire(t, d, req)
	c.awaitKeys(t, "x")
	nonce, _, _ = strings.Cut(fmt.Sprint(c.nodes[0].Must("GET", "x")), " ")
	channel = "snib.rb:" + nonce[:16]
	livetest.Await(t, "subscription of the holder", func() error {
		for _, n := range c.nodes {
			if channels, _ := n.Must("PUBSUB", "CHANNELS", channel).([]any); len(channels) != 1 {
				return fmt.Errorf("%s has %v", n.Addr(), channels)
			}
		}
		return nil
	})
	return d, l, lost, nonce, channel
}

// A message that a lease was broken is only a hint. A forged one ends no hold, and does not
// stop anybody from working.
func TestForgedBreak(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	d, l, lost, nonce, channel := c.holdAndListen(t, time.Minute)
	value := fmt.Sprint(c.nodes[0].Must("GET", "x"))
	for _, n := range c.nodes {
		for range 200 {
			for _, message := range []string{nonce + " ", nonce, "", "g 1 9223372036854775807", value} {
				n.Must("PUBLISH", channel, message)
			}
		}
	}
	if err := renew(t, d, l); err != nil {
		t.Errorf("Renew after forged messages = %v", err)
	}
	release(t, acquire(t, d, request("y", "o", time.Minute)))
	release(t, l)
	select {
	case err := <-lost:
		t.Errorf("OnLost was called with %v after forged messages", err)
	default:
	}
}

// A Break that reaches one node long before the others is noticed, even if only that
// node publishes it.
func TestPartialBreak(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	_, _, lost, nonce, channel := c.holdAndListen(t, time.Minute)
	c.nodes[0].Must("HINCRBY", "snib.redlock", "c1667", 1) // what a Break does
	c.nodes[0].Must("DEL", "x")
	c.nodes[0].Must("PUBLISH", channel, nonce+" ")
	select {
	case err := <-lost:
		t.Fatalf("OnLost was called with %v, and the lease is still on a majority", err)
	case <-time.After(ttl): // the first check is over
	}
	c.nodes[1].Must("HINCRBY", "snib.redlock", "c1667", 1)
	c.nodes[1].Must("DEL", "x")
	select {
	case err := <-lost:
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("OnLost was called with %v, want ErrLost", err)
		}
	case <-time.After(testTimeout): // the lease lasts a minute
		t.Error("OnLost was not called")
	}
	d := open(t, c.servers)
	if err := answer(t, func() error { return d.Break(within(t, testTimeout), "x", "o") }); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Break of what is broken = %v, want ErrLost", err)
	}
}

// A driver that is told that a lease may be broken asks the nodes, and extends nothing: a hold with
// a LockDelay that the core has given up is not released, and its lease must end by itself.
func TestCheckExtendsNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	const ttl = 10 * time.Second // in which the driver listens to all nodes, and checks more than once
	_, _, _, nonce, channel := c.holdAndListen(t, ttl)
	c.nodes[0].Must("HINCRBY", "snib.redlock", "c1667", 1) // so that one node refuses for good
	c.nodes[0].Must("DEL", "x")
	c.nodes[1].Must("PUBLISH", channel, nonce+" ")
	acquire(t, open(t, c.servers), request("x", "p", ttl))
}
