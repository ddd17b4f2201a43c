package redlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// takeOver lets an owner take over what its lost request has taken late on some of three nodes. On
// a busy machine the driver of the lost request may free that first; takeOver then begins again.
// The argument prepare returns the driver for the owner.
func takeOver(t *testing.T, prepare func(c *cluster, l *lateRequest) *redlock.Driver, nodes ...int) (*cluster, *redlock.Driver, driver.Lease) {
	t.Helper()
	for {
		c := start(t, 3)
		c.init(t)
		late := c.giveUp(t)
		d := prepare(c, late)
		late.deliver(nodes...)
		want := late.awaitToken(t, nodes...)
		if l := acquire(t, d, request("job", "o", time.Minute)); token(l) == want {
			return c, d, l
		}
		if t.Context().Err() != nil {
			t.FailNow()
		}
	}
}

// TestTakenOver lets the nodes execute a request that was given up, and its owner acquires again,
// through the same driver or through another one. The owner keeps the lock, although the first
// driver still frees what its lost request has taken.
func TestTakenOver(t *testing.T) {
	for name, prepare := range map[string]func(*cluster, *lateRequest) *redlock.Driver{
		"Here":      func(_ *cluster, l *lateRequest) *redlock.Driver { return l.d },
		"Elsewhere": func(c *cluster, _ *lateRequest) *redlock.Driver { return open(t, c.servers) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, d, l := takeOver(t, prepare, 0, 1, 2)
			for began := time.Now(); time.Since(began) < driver.AnswerTimeout; {
				if err := renew(t, d, l); errors.Is(err, driver.ErrLost) {
					t.Fatalf("Renew %v after the grant = %v", time.Since(began), err)
				}
			}
			release(t, l)
			awaitNoKeys(t, c.nodes...)
		})
	}
}

// TestTakenOverWhileDown is TestTakenOver with a node that is down when the owner acquires again. A
// renewal brings the lease to this node, and there it stays.
func TestTakenOverWhileDown(t *testing.T) {
	t.Parallel()
	c, d, l := takeOver(t, func(c *cluster, l *lateRequest) *redlock.Driver {
		c.nodes[2].Hang()
		for began := time.Now(); time.Since(began) < time.Second; { // more than NodeTimeout
			release(t, acquire(t, l.d, request("another job", "o", time.Minute)))
		}
		return l.d
	}, 0, 1)
	c.nodes[2].Resume()
	hasJob := func() bool { return slices.Contains(keysOn(t, c.nodes[2]), "job") }
	livetest.Await(t, "lease on the node that was down", func() error {
		if err := renew(t, d, l); err != nil {
			return err
		}
		if !hasJob() {
			return errors.New("it has not got it")
		}
		return nil
	})
	for began := time.Now(); time.Since(began) < driver.AnswerTimeout; {
		if !hasJob() {
			t.Fatalf("%v after the renewal, the node has freed the lock", time.Since(began))
		}
	}
	release(t, l)
	awaitNoKeys(t, c.nodes...)
}

// isTakeOver is part of each request to take a lease over.
const isTakeOver = "\r\n$1\r\ng\r\n"

// TestTakeOverFails lets the owner of a request that was given up acquire again and give that up,
// too. Nothing is left, although the nodes execute both requests.
func TestTakeOverFails(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	late := c.giveUp(t)
	late.deliver(0, 1, 2)
	late.awaitToken(t, 0, 1, 2)
	for _, p := range late.proxies {
		p.LoseAnswers(1, livetest.ThenHang, isTakeOver)
	}
	if l, err := late.d.Acquire(within(t, 100*time.Millisecond), request("job", "o", time.Minute)); err == nil {
		release(t, l) // the driver had freed the lock before
	}
	// The driver replaces a connection only if somebody misses an answer.
	livetest.Await(t, "new connections", func() error {
		l, err := tryAcquire(t, late.d, request("another job", "o", time.Minute))
		if err == nil {
			release(t, l)
		}
		return err
	})
	awaitNoKeys(t, c.nodes...)
}

// TestTakeOverUndone checks that a hold stays if its owner acquires again through another driver
// and gives that up.
func TestTakeOverUndone(t *testing.T) {
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	l := acquire(t, d, request("job", "o", time.Minute))
	c.awaitKeys(t, "job")
	nonce, _, _ := strings.Cut(fmt.Sprint(c.nodes[0].Must("GET", "job")), " ")
	servers, proxies := c.detour(t)
	other := open(t, servers)
	var sent []<-chan struct{}
	for _, p := range proxies {
		p.LoseAnswers(1000, livetest.ThenClose, isTakeOver)
		sent = append(sent, p.Sent(isTakeOver))
	}
	livetest.Await(t, "take-over by a majority", func() error {
		if again, err := tryAcquire(t, other, request("job", "o", time.Minute)); err == nil {
			t.Fatalf("Acquire although no answer gets through = %v", again)
		}
		count := 0
		for _, done := range sent {
			select {
			case <-done:
				count++
			default:
			}
		}
		if count < 2 {
			return fmt.Errorf("%d nodes were sent one", count)
		}
		return nil
	})
	for _, p := range proxies {
		p.Heal()
	}
	livetest.Await(t, "end of the take-over", func() error {
		for i, n := range c.nodes {
			if now := fmt.Sprint(n.Must("GET", "job")); !strings.HasPrefix(now, nonce+" ") {
				return fmt.Errorf("node %d has %q, want the nonce %s", i, now, nonce)
			}
		}
		return nil
	})
	if err := renew(t, d, l); err != nil {
		t.Errorf("Renew after a take-over that failed = %v", err)
	}
	release(t, l)
	awaitNoKeys(t, c.nodes...)
}

// TestOldHandle checks that a handle, whose lease the owner has taken over through another driver,
// can't free the lock any more.
func TestOldHandle(t *testing.T) {
	c := start(t, 3)
	c.init(t)
	d, other := open(t, c.servers), open(t, c.servers)
	old := acquire(t, d, request("job", "o", time.Minute))
	c.awaitKeys(t, "job")
	l := acquire(t, other, request("job", "o", time.Minute))
	if token(l) != token(old) {
		t.Errorf("acquired again, the token is %d, want %d", token(l), token(old))
	}
	if err := old.Release(within(t, testTimeout)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release of the old handle = %v, want ErrLost", err)
	}
	checkHeld(t, d, request("job", "p", time.Minute), "after the release of the old handle")
	if err := renew(t, other, l); err != nil {
		t.Errorf("Renew of the new handle = %v", err)
	}
	release(t, l)
	awaitNoKeys(t, c.nodes...)
}

// TestTakeOverKeepsTheToken takes a lease over while one node has a greater token for it, as a node
// has that granted it when the majority had decided already. The hold lives on, with its token.
func TestTakeOverKeepsTheToken(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	first := acquire(t, open(t, c.servers), request("job", "o", time.Minute))
	c.awaitKeys(t, "job")
	for i, n := range c.nodes {
		was := fmt.Sprint(n.Must("GET", "job"))
		nonce, rest, _ := strings.Cut(was, " ")
		_, holder, _ := strings.Cut(rest, " ")
		n.Must("SET", "job", fmt.Sprintf("%s %d %s", nonce, token(first)+7, holder), "KEEPTTL")
		again := acquire(t, open(t, c.servers), request("job", "o", time.Minute))
		if token(again) != token(first) {
			t.Fatalf("with a greater token on node %d, the lease acquired again has the token %d, want %d", i, token(again), token(first))
		}
		if err := renew(t, open(t, c.servers), again); err != nil { // which tells the node the token
			t.Fatal(err)
		}
	}
}

// TestTakenOverInPart lets an owner take its lease over while a node hangs, which keeps the old
// nonce. The owner can take the lease over once more, although no nonce has a majority then, and
// its release frees the lock on all nodes.
func TestTakenOverInPart(t *testing.T) {
	c := start(t, 3)
	c.init(t)
	first := acquire(t, open(t, c.servers), request("job", "o", time.Minute))
	c.awaitKeys(t, "job")
	c.nodes[2].Hang()
	acquire(t, open(t, c.servers), request("job", "o", time.Minute))
	c.nodes[0].Kill()
	c.nodes[2].Resume()
	var l driver.Lease
	livetest.Await(t, "lease on the other nodes", func() (err error) {
		l, err = tryAcquire(t, open(t, c.servers), request("job", "o", time.Minute))
		return err
	})
	if token(l) != token(first) {
		t.Errorf("acquired again, the token is %d, want %d", token(l), token(first))
	}
	release(t, l)
	awaitNoKeys(t, c.nodes[1:]...)
}

// TestReleaseAfterTakeOver releases a lease that its owner has taken over while a node hung. The
// release also frees the lock on this node, which has the old nonce.
func TestReleaseAfterTakeOver(t *testing.T) {
	c := start(t, 3)
	c.init(t)
	acquire(t, open(t, c.servers), request("job", "o", time.Minute))
	c.awaitKeys(t, "job")
	d := open(t, c.servers)
	release(t, acquire(t, d, request("warm", "o", time.Minute)))
	c.nodes[2].Hang()
	l := acquire(t, d, request("job", "o", time.Minute))
	release(t, l)
	c.nodes[2].Resume()
	awaitNoKeys(t, c.nodes...)
}

// TestOneOwnerInParallel acquires a lock many times in parallel for one owner. All handles are of
// one lease.
func TestOneOwnerInParallel(t *testing.T) {
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	for range 20 {
		var wg sync.WaitGroup
		leases := make([]driver.Lease, 8)
		for i := range leases {
			wg.Go(func() {
				l, err := d.Acquire(within(t, testTimeout), request("job", "o", time.Minute))
				if err != nil {
					t.Errorf("Acquire %d = %v", i, err)
				}
				leases[i] = l
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for i, r := range d.Renew(within(t, testTimeout), leases) {
			if r.Err != nil || token(leases[i]) != token(leases[0]) {
				t.Errorf("handle %d with the token %d: Renew = %v, want the token %d and nil", i, token(leases[i]), r.Err, token(leases[0]))
			}
		}
		release(t, leases[0])
		awaitNoKeys(t, c.nodes...)
	}
}
