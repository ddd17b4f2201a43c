package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// TestChannelsOnFullDisk has a process not need a channel any more while the disks of the servers
// are full. They answer PING with an error then. After UNSUBSCRIBE rueidis sends a PING, and panics
// if that fails.
func TestChannelsOnFullDisk(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "redis")
	c := start(livetest.WithEnv(t, shim.Env()...), 3, "appendonly yes")
	c.init(t)
	holder, waiter := open(t, c.servers), open(t, c.servers)
	acquire(t, holder, request("x", "holder", time.Minute))
	acquire(t, holder, request("y", "holder", time.Minute))
	giveUp := wait(t, waiter, "x")
	wait(t, waiter, "y")
	livetest.Await(t, "two channels", func() error { return checkTopics(waiter, 2) })

	shim.FillDisk(true)
	defer shim.FillDisk(false)
	for _, n := range c.nodes {
		n.AwaitFullDisk("other")
	}
	giveUp()
	livetest.Await(t, "one channel", func() error { return checkTopics(waiter, 1) })
	if err := waiter.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestUnneededChannels has a process not need many channels any more. Its connections are made
// anew.
func TestUnneededChannels(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	holder, waiter := open(t, c.servers), open(t, c.servers)
	redlock.KeepUnneeded(waiter, 3)
	names := []string{"a", "b", "c", "d", "last"}
	var giveUp []func()
	for _, name := range names {
		acquire(t, holder, request(name, "holder", time.Minute))
		giveUp = append(giveUp, wait(t, waiter, name))
	}
	livetest.Await(t, "all channels", func() error { return c.checkChannels(waiter, len(names)) })
	for _, f := range giveUp[:len(names)-1] {
		f()
	}
	livetest.Await(t, "one channel", func() error { return c.checkChannels(waiter, 1) })
}

// checkChannels checks that a driver needs so many channels, and that there are no others of
// waiters.
func (c *cluster) checkChannels(d *redlock.Driver, want int) error {
	if err := checkTopics(d, want); err != nil {
		return err
	}
	for _, n := range c.nodes {
		all, _ := n.Must("PUBSUB", "CHANNELS", "snib.rw:*").([]any)
		if len(all) != want {
			return fmt.Errorf("%s has %v", n.Addr(), all)
		}
	}
	return nil
}

func checkTopics(d *redlock.Driver, want int) error {
	if got := redlock.Topics(d); got != want {
		return fmt.Errorf("the driver needs %d", got)
	}
	return nil
}

// wait waits for a lock in the background, and returns a function that gives up.
func wait(t *testing.T, d *redlock.Driver, name string) (giveUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req := request(name, "waiter", time.Minute)
	req.NoWait, req.RetryTimeout = false, time.Minute
	waits, ended := make(chan struct{}, 1), make(chan error, 1)
	req.OnWait = func(error) {
		select {
		case waits <- struct{}{}:
		default:
		}
	}
	go func() {
		_, err := d.Acquire(ctx, req)
		ended <- err
	}()
	select {
	case <-waits:
	case err := <-ended:
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire: %v", err)
		}
	}
}
