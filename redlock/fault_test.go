package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// Nodes that hang cost neither time nor goroutines, and no key is left on them when
// they continue.
func TestHungNodes(t *testing.T) {
	c := start(t, 5)
	c.init(t)
	d := open(t, c.servers)
	cycle := func(i int) {
		l, err := d.Acquire(within(t, testTimeout), request(fmt.Sprint("x", i%50), fmt.Sprint("o", i), time.Minute))
		if err != nil {
			t.Errorf("Acquire = %v", err)
			return
		}
		if err := l.Release(within(t, testTimeout)); err != nil {
			t.Errorf("Release = %v", err)
		}
	}
	cycleMany := func() {
		var all sync.WaitGroup
		for g := range 50 {
			all.Go(func() {
				for i := range 20 {
					cycle(g + 50*i)
				}
			})
		}
		all.Wait()
	}
	cycleMany()
	before := runtime.NumGoroutine()
	held := acquire(t, d, request("held", "o", time.Minute))
	c.awaitKeys(t, "held")
	c.nodes[1].Hang()
	c.nodes[3].Hang()
	// Repeat until the hung nodes count as down.
	for since := time.Now(); time.Since(since) < 500*time.Millisecond; {
		cycleMany()
	}
	livetest.Await(t, "end of what was given up", func() error {
		if after := runtime.NumGoroutine(); after > before+5 {
			return fmt.Errorf("%d goroutines with two nodes hung, and %d before", after, before)
		}
		return nil
	})
	release(t, held)
	c.nodes[1].Resume()
	c.nodes[3].Resume()
	awaitNoKeys(t, c.nodes...)
}

// Nodes that are out of memory grant nothing, and say why. Holders keep their locks, and release
// them, also with MinHold.
func TestNodesWithoutMemory(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	closed := request("x", "o", time.Minute)
	closed.MinHold = time.Minute
	l, kept := acquire(t, d, closed), acquire(t, d, request("kept", "o", time.Minute))
	short := acquire(t, d, request("short", "o", time.Minute))
	if err := renew(t, d, short); err != nil {
		t.Fatalf("Renew = %v", err)
	}
	c.awaitKeys(t, "kept", "short", "x")
	limit := func(bytes string) {
		for _, n := range c.nodes {
			n.Must("CONFIG", "SET", "maxmemory", bytes)
		}
	}
	limit("1")
	err := awaitRefusal(t, d, request("y", "o", time.Minute), "its memory is full: raise its maxmemory", "OOM")
	checkError(t, "Acquire without memory", err, driver.ErrUnavailable)
	if err := renew(t, d, kept); err != nil {
		t.Errorf("Renew without memory = %v", err)
	}
	if err := short.Release(within(t, testTimeout)); err != nil {
		t.Errorf("Release without memory = %v", err)
	}
	if err := l.Release(within(t, testTimeout)); err != nil {
		t.Errorf("Release with MinHold without memory = %v", err)
	}
	livetest.Await(t, "release with MinHold", func() error {
		for i, n := range c.nodes {
			if value := fmt.Sprint(n.Must("GET", "x")); !strings.HasPrefix(value, "kept:") {
				return fmt.Errorf("node %d has %q", i, value)
			}
		}
		return nil
	})
}

// Commands queued for a hung node free the lock when the node continues, in order, even if the
// acquisition failed.
func TestFailedAttemptLeavesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	release(t, acquire(t, d, request("warm", "o", time.Minute)))
	for _, n := range c.nodes {
		n.Hang()
	}
	const long = time.Minute // nothing expires by itself
	if l, err := d.Acquire(within(t, 2*time.Second), request("x", "o", long)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire with all nodes hung = %v, %v, want the end of its context", l, err)
	}
	for _, n := range c.nodes {
		n.Resume()
	}
	awaitNoKeys(t, c.nodes...)
}

// With three of five nodes gone, nothing is granted, and holders learn of the loss in time.
// When the nodes are back, locks can be acquired again.
func TestMajorityGone(t *testing.T) {
	for _, how := range []string{"Hung", "Killed"} {
		t.Run(how, func(t *testing.T) {
			c := start(t, 5)
			const longest = 3 * time.Second
			c.opts = []redlock.Option{redlock.MaxTTL(longest)}
			c.init(t)
			locker, err := snib.New(open(t, c.servers, c.opts...), snib.TTL(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { locker.Close() })
			held, err := locker.Acquire(t.Context(), "held")
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range c.nodes[:3] {
				if how == "Hung" {
					n.Hang()
				} else {
					n.Kill()
				}
			}
			gone, machine := time.Now(), livetest.Lateness(t)
			lost := make(chan time.Duration, 1)
			go func() {
				<-held.Lost()
				lost <- time.Since(gone)
			}()
			if l, err := locker.Acquire(within(t, 500*time.Millisecond), "x"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire with three of five nodes gone = %v, %v, want the end of its context", l, err)
			}
			began := time.Now()
			if l, err := locker.TryAcquire(t.Context(), "x"); err == nil || errors.Is(err, snib.ErrHeld) ||
				time.Since(began) > testTimeout {
				t.Errorf("TryAcquire with three of five nodes gone = %v, %v after %v, want soon that there is no majority", l, err,
					time.Since(began))
			}
			select {
			case took := <-lost:
				if late := machine(); took > time.Second+10*late {
					t.Errorf("the holder of a lease of 1 s was told after %v, on a machine that was late by %v", took, late)
				}
			case <-time.After(testTimeout):
				t.Error("the holder was not told")
			}
			for _, n := range c.nodes[:3] {
				if how == "Hung" {
					n.Resume()
				} else {
					n.Restart()
				}
			}
			again, err := locker.Acquire(within(t, longest+testTimeout), "held")
			if err != nil {
				t.Fatalf("Acquire when the nodes are back = %v", err)
			}
			if again.Token() <= held.Token() {
				t.Errorf("token %d after %d", again.Token(), held.Token())
			}
			if err := again.Release(); err != nil && !errors.Is(err, snib.ErrLost) { // a busy machine may outlast the TTL
				t.Errorf("Release = %v", err)
			}
			awaitNoKeys(t, c.nodes...)
		})
	}
}

// A node that restarts without memory grants nothing until the longest TTL is over. Then it
// knows the counters of the others.
func TestAdmission(t *testing.T) {
	c := start(t, 3)
	const longest = 10 * time.Second // enough to start a node and to query others
	c.opts = []redlock.Option{redlock.MaxTTL(longest)}
	c.init(t)
	d := open(t, c.servers, c.opts...)
	old := acquire(t, d, request("x", "a", longest))
	c.nodes[0].Kill()
	c.nodes[0].Restart()
	restarted := driver.Now()
	c.nodes[1].Kill() // node 2 has the lease; with node 0 it would be a majority
	err := awaitRefusal(t, d, request("x", "b", longest),
		"1 of 3 nodes take part, which is no majority", c.nodes[0].Addr()+": it is new, or has lost its memory",
		c.nodes[1].Addr()+": ", "within 10s")
	checkError(t, "Acquire with a node that has forgotten the lease", err, driver.ErrUnavailable)
	c.nodes[1].Restart()
	next := acquire(t, d, request("x", "b", longest))
	if took := next.Grant().Start.Sub(restarted); took < longest {
		t.Errorf("granted %v after the restart of a node, want %v at least", took, longest)
	}
	if token(next) <= token(old) {
		t.Errorf("token %d after %d", token(next), token(old))
	}
	c.awaitStates(t, repeatState(3, redlockadmin.NodeAdmitted)...)
}

// So is one that is farther away than the others.
func TestAdmissionOfDistantNode(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.opts = []redlock.Option{redlock.MaxTTL(time.Second), redlock.NodeTimeout(testTimeout)}
	c.init(t)
	servers, proxies := c.detour(t)
	d := open(t, servers, c.opts...)
	proxies[2].Delay(150*time.Millisecond, 0)
	c.nodes[2].Must("DEL", "snib.redlock")
	pass(t, d, "x", "o") // makes the driver notice
	c.awaitStates(t, repeatState(3, redlockadmin.NodeAdmitted)...)
}

// A majority without memory is admitted by time. The counters go on from the present, or from the
// floor that an operator gives while no client runs.
func TestMajorityForgets(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	const longest = 2 * time.Second
	c.opts = []redlock.Option{redlock.MaxTTL(longest)}
	c.init(t)
	d := open(t, c.servers, c.opts...)
	last := token(acquire(t, d, request("x", "a", longest)))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	forget := func(nodes ...*redistest.Node) {
		for _, n := range nodes {
			n.Kill()
			n.Restart()
		}
	}
	forget(c.nodes[:2]...)
	c.awaitStates(t, redlockadmin.NodeBlank, redlockadmin.NodeBlank, redlockadmin.NodeAdmitted)
	floor := last + 1e9
	if err := redlock.Admin(c.servers, c.opts...).Recover(within(t, testTimeout), floor); err != nil {
		t.Fatalf("Recover = %v", err)
	}
	c.awaitStates(t, repeatState(3, redlockadmin.NodeAdmitted)...)
	d = open(t, c.servers, c.opts...)
	l := acquire(t, d, request("x", "c", longest))
	if token(l) <= floor {
		t.Errorf("token %d, want more than the floor %d", token(l), floor)
	}

	forget(c.nodes[1:]...)
	acquire(t, d, request("x", "d", longest))
	c.awaitStates(t, repeatState(3, redlockadmin.NodeAdmitted)...)
}

// Neither Open nor Close waits for a node that hangs as long as NodeTimeout.
func TestHungNodeAtBothEnds(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	c.nodes[1].Hang()
	d, err := redlock.Open(within(t, testTimeout), c.servers, redlock.NodeTimeout(time.Hour))
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	release(t, acquire(t, d, request("x", "o", time.Minute)))
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// A node that restarted takes part again although no client lives as long as the node must wait. A
// node that hangs meanwhile does not prevent that.
func TestShortClients(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	const longest = 3 * time.Second
	c.opts = []redlock.Option{redlock.MaxTTL(longest)}
	c.init(t)
	c.nodes[0].Hang()
	c.nodes[4].Kill()
	c.nodes[4].Restart()
	restarted := time.Now()
	livetest.Await(t, "admission", func() error {
		d, err := redlock.Open(within(t, testTimeout), c.servers, c.opts...)
		if err != nil {
			return err
		}
		defer d.Close()
		l, err := tryAcquire(t, d, request("x", "o", longest))
		if err != nil {
			return err
		}
		if err := l.Release(within(t, testTimeout)); err != nil { // a busy machine may outlast the lease
			return err
		}
		if admitted := fmt.Sprint(c.nodes[4].Must("HGET", "snib.redlock", "mark")); admitted != "<nil>" ||
			time.Since(restarted) < longest {
			return fmt.Errorf("its mark is %s", admitted)
		}
		return nil
	})
	c.nodes[0].Resume()
	if left := c.nodes[4].Must("HMGET", "snib.redlock", "mark", "since"); fmt.Sprint(left) != "[<nil> <nil>]" {
		t.Errorf("after the admission, mark and times are %v, want none", left)
	}
	c.awaitStates(t, repeatState(5, redlockadmin.NodeAdmitted)...)
}

// If two clients split the vote, nobody has a majority. A request with NoWait retries, and its
// final error does not say that the lock is held.
func TestSplitVote(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	const stray = "nonce 1 {\"since\":0,\"id\":\"stray\"}"
	c.nodes[0].Must("SET", "x", "a"+stray, "PX", 20)
	c.nodes[1].Must("SET", "x", "b"+stray, "PX", 20)
	l, err := tryAcquire(t, d, request("x", "o", time.Minute))
	if err != nil {
		t.Fatalf("Acquire with NoWait while two fight = %v, want a lease when they have given up", err)
	}
	release(t, l)
	c.nodes[0].Must("SET", "x", "a"+stray, "PX", 60000)
	c.nodes[1].Must("SET", "x", "b"+stray, "PX", 60000)
	err = awaitRefusal(t, d, request("x", "o", time.Minute), "several clients compete")
	checkError(t, "Acquire while two fight for ever", err, driver.ErrUnavailable)
	awaitNoKeys(t, c.nodes[2])
	// The second node may have the lock of the first one or not, so nobody is known to hold it.
	c.nodes[1].Kill()
	waiting := request("x", "o", ttl)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(within(t, testTimeout))
	var told error
	waiting.OnWait = func(err error) {
		told = err
		cancel(enough)
	}
	_, err = d.Acquire(ctx, waiting)
	checkError(t, "a wait for a node that is down", err, driver.ErrUnavailable, "enough")
	checkError(t, "OnWait", told, driver.ErrUnavailable)
}

// A renewal brings a valid lease to nodes that have forgotten it or were away.
func TestRenewalTakesAgain(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	l := acquire(t, d, request("x", "o", time.Minute))
	c.awaitKeys(t, "x")
	c.nodes[0].Must("DEL", "x")
	if err := renew(t, d, l); err != nil {
		t.Errorf("Renew with one key gone = %v", err)
	}
	c.awaitKeys(t, "x")
	release(t, l)
	awaitNoKeys(t, c.nodes...)
}

// A lease with a block of tokens is known by its first token. It keeps the other tokens, also on a
// node that forgot the lease and takes it again.
func TestBlockOfTokens(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	req := request("x", "o", time.Minute)
	req.Tokens = 5
	l := acquire(t, d, req)
	first := token(l)
	if l.Grant().Tokens != 5 {
		t.Errorf("Tokens = %d, want 5", l.Grant().Tokens)
	}
	c.awaitKeys(t, "x")
	c.nodes[0].Must("DEL", "x")
	if err := renew(t, d, l); err != nil {
		t.Errorf("Renew with one key gone = %v", err)
	}
	livetest.Await(t, "renewal on the node that forgot", func() error {
		if got, want := fmt.Sprint(c.nodes[0].Must("GET", "x")), fmt.Sprintf(" %d {", first+4); !strings.Contains(got, want) {
			return fmt.Errorf("its key is %q, want the token %d", got, first+4)
		}
		return nil
	})
	other := open(t, c.servers)
	st, err := statusOf(t, other, "x")
	if err != nil || len(st.Holders) != 1 || st.Holders[0].Token != first {
		t.Errorf("Status = %+v, %v, want one holder with the token %d", st, err, first)
	}
	if err := breakHold(t, other, "x", l.ID()); err != nil {
		t.Errorf("Break of the token %d = %v", first, err)
	}
	if next := token(acquire(t, other, request("x", "p", time.Minute))); next <= first+4 {
		t.Errorf("the next token is %d, of which %d to %d were reserved", next, first, first+4)
	}
}

// A connection that died without notice to either side is replaced if the server
// answers on others.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	servers, proxies := c.detour(t)
	d := open(t, servers)
	c.nodes[2].Kill() // so both other nodes are needed
	release(t, acquire(t, d, request("x", "o", time.Minute)))
	lost := proxies[0].LoseAnswers(1, livetest.ThenHang, "EVALSHA")
	if _, err := tryAcquire(t, d, request("x", "o", ttl)); err == nil {
		t.Fatal("granted by one of three nodes")
	}
	<-lost
	release(t, acquire(t, d, request("x", "p", time.Minute)))
}

// So are those of a holder, which sends nothing but renewals.
func TestDeadConnectionsOfHolder(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	servers, proxies := c.detour(t)
	d := open(t, servers)
	l := acquire(t, d, request("x", "o", time.Minute))
	time.Sleep(4 * time.Second) // the driver looks after new connections for a while
	heal := livetest.All(proxies, (*livetest.Proxy).StallConnected)
	defer heal()
	if err := tryRenew(t, d, l); err == nil {
		t.Fatal("a renewal got through")
	}
	if err := renew(t, d, l); err != nil {
		t.Errorf("Renew on new connections = %v", err)
	}
}

// A lease that is over, and that nobody releases, keeps no subscription.
func TestForgottenLease(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	req := request("x", "o", ttl)
	req.OnLost = func(error) {}
	acquire(t, d, req)
	livetest.Await(t, "end of the subscription", func() error { return checkTopics(d, 0) })
}

// TestExecutedLate gives up a request that the network holds back until the driver has other
// connections, and has freed on those what the request may take. Then the nodes execute it. The
// driver frees the lock again.
func TestExecutedLate(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	servers, proxies := c.detour(t)
	d := open(t, servers)
	release(t, acquire(t, d, request("warm", "o", time.Minute)))
	// No node owes an answer afterwards, or it would not be sent the request.
	if _, err := statusOf(t, d, "warm"); err != nil {
		t.Fatalf("Status = %v", err)
	}
	heal := make([]func(), 0, len(proxies))
	for _, p := range proxies {
		heal = append(heal, p.StallConnected())
	}
	if lease, err := d.Acquire(within(t, 100*time.Millisecond), request("job", "p", time.Minute)); err == nil {
		t.Fatalf("Acquire while nothing gets through = %v", lease)
	}
	c.awaitNewConnections(t, d)
	for _, deliver := range heal {
		deliver()
	}
	// or it is freed already
	for began := time.Now(); time.Since(began) < time.Second && !slices.Contains(keysOn(t, c.nodes[0]), "job"); {
	}
	awaitNoKeys(t, c.nodes...)
	release(t, acquire(t, d, request("job", "q", time.Minute)))
}

// awaitNewConnections waits until the driver has connections on which all nodes carry out what it
// sends, and until they have no keys.
func (c *cluster) awaitNewConnections(t *testing.T, d *redlock.Driver) {
	t.Helper()
	var other driver.Lease
	livetest.Await(t, "new connections", func() (err error) {
		other, err = tryAcquire(t, d, request("another job", "o", time.Minute))
		return err
	})
	livetest.Await(t, "new connections to all nodes", func() error {
		if err := tryRenew(t, d, other); err != nil {
			return err
		}
		for i, n := range c.nodes {
			if !slices.Contains(keysOn(t, n), "another job") {
				return fmt.Errorf("none to node %d", i)
			}
		}
		return nil
	})
	release(t, other)
	awaitNoKeys(t, c.nodes...)
}
