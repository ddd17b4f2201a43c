package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// valid returns how long a lease can still be relied on if it was renewed last, or granted, at
// start.
func valid(l driver.Lease, ttl time.Duration) time.Duration {
	return l.Grant().Start.Add(ttl).Left(driver.Now())
}

// TestFailover kills a master that holds a lock of which the replica has not heard. The new
// master does not grant the lock while that hold is valid, unless failover-grace is off: then
// the test sees two holders.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, grace := range []bool{true, false} {
			if !grace && mode.name != "Exclusive" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", mode.name, grace), func(t *testing.T) {
				t.Parallel()
				ttl := 7 * time.Second
				if !grace {
					ttl = 10 * time.Minute // the Sentinels may vote several times
				}
				s := redistest.Sentinel(t, redistest.Password(password))
				used(t, s.Master())
				o := bySentinel(s)
				o.Password = password
				d1, d2 := open(t, o, redislock.FailoverGrace(grace)), open(t, o, redislock.FailoverGrace(grace))
				req := func(id string) driver.Request { return mode.as(request("job", id, ttl)) }
				before := take(t, d1, req("before"))
				free(t, before)
				s.WaitForReplicas() // it knows of the TTL

				master := s.Master()
				replica := s.Nodes()[1]
				replica.Must("CONFIG", "SET", "masterauth", "not the password")
				master.Must("CLIENT", "KILL", "TYPE", "replica")
				livetest.Await(t, "cut between master and replica", func() error {
					if link := info(t, replica, "replication", "master_link_status"); link != "down" {
						return fmt.Errorf("the link is %s", link)
					}
					return nil
				})
				first := take(t, d1, req("first"))
				if n := replica.Must("EXISTS", "job"); n != int64(0) {
					t.Fatal("the replica has the lock")
				}
				s.KillMaster()
				other := req("second")
				other.Shared = false
				second := begin(t, d2, other)
				l, took := granted(t, second, livetest.Patience, "second")
				left := valid(first, ttl)
				free(t, l)
				t.Logf("granted by the new master after %v, when the first hold was valid for another %v", took, left)
				if grace && left > 0 {
					t.Errorf("two hold the lock, for %v", left)
				}
				if !grace && left <= 0 {
					t.Errorf("without failover-grace the lock was granted only when the first hold had ended, for %v: the "+
						"control controls nothing", -left)
				}
				if token(l) <= token(first) || token(first) <= token(before) {
					t.Errorf("tokens %d, %d, and of the new master %d: they go back", token(before), token(first), token(l))
				}
				if grace {
					if err := renewAgain(t, d1, first); !errors.Is(err, driver.ErrLost) {
						t.Errorf("Renew of the first hold = %v, want ErrLost", err)
					}
				}
				nothingLeft(t, s.Master())
			})
		}
	}
}

// TestFailoverInOrder fails over from a master to a replica that has all its data: the hold
// goes on.
func TestFailoverInOrder(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second // in which a Sentinel can choose another master
	s := redistest.Sentinel(t)
	used(t, s.Master())
	d1, d2 := open(t, bySentinel(s)), open(t, bySentinel(s))
	l := take(t, d1, request("job", "holder", ttl))
	waiter := wait(t, d2, request("job", "waiter", ttl), 1)
	s.Failover()
	if err := renewAgain(t, d1, l); err != nil {
		t.Fatalf("Renew after a failover in order = %v", err)
	}
	time.Sleep(500 * time.Millisecond) // in which the waiter finds the new master
	pending(t, waiter, "the waiter", "while the holder renews")
	free(t, l)
	next, took := granted(t, waiter, time.Minute, "the waiter")
	t.Logf("granted %v after the release", took)
	if token(next) <= token(l) {
		t.Errorf("token %d after %d", token(next), token(l))
	}
	free(t, next)
	nothingLeft(t, s.Master())
}

// TestRestartWithoutMemory kills a server that forgets everything. It grants nothing until the
// leases that it may have forgotten are over.
func TestRestartWithoutMemory(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second // in which a server can be killed, started and asked
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	// Redis counts its uptime in whole seconds of the wall clock: if it starts just before a
	// second begins, it counts one second soon afterwards.
	sinceSecond := func() time.Duration { return time.Duration(time.Now().Nanosecond()) }
	time.Sleep((1850*time.Millisecond - sinceSecond()) % time.Second)
	first := take(t, d1, request("job", "first", ttl))
	node.Kill()
	node.Restart()
	time.Sleep((1150*time.Millisecond - sinceSecond()) % time.Second)
	for _, mode := range modes {
		left := withheld(t, d2, mode.as(request("job", "second", ttl)), "after a restart without memory")
		if left <= 0 || left > ttl+2*time.Second {
			t.Errorf("%s: a restart without memory withholds the lock for %v, want at most %v", mode.name, left,
				ttl+2*time.Second)
		}
	}
	// The server can't know that it was never held.
	withheld(t, d2, request("never held", "second", ttl), "after a restart without memory")
	waiter := begin(t, d2, request("job", "second", ttl))
	if err := renewAgain(t, d1, first); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew after a restart without memory = %v, want ErrLost", err)
	}
	l, _ := granted(t, waiter, ttl+enough, "second")
	if left := valid(first, ttl); left > 0 {
		t.Errorf("granted while the first hold is valid for another %v", left)
	}
	if token(l) <= token(first) {
		t.Errorf("token %d after %d", token(l), token(first))
	}
	free(t, l)
	nothingLeft(t, node)
}

// TestRestartWithMemory kills a server that keeps its data. Holders keep their locks. Others
// wait, because the server can't be sure that it knows all leases.
func TestRestartWithMemory(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second // in which a server can be killed and started
	inEachMode(t, func(t *testing.T, mode lockMode) {
		node := used(t, redistest.Single(t, "appendonly yes", "appendfsync always"))
		d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
		req := func(id string) driver.Request { return mode.as(request(mode.name, id, ttl)) }
		l := take(t, d1, req("first"))
		waiter := req("second")
		waiter.Shared = false
		node.Kill()
		node.Restart()
		restarted := time.Now()
		if err := renewAgain(t, d1, l); err != nil {
			t.Errorf("Renew after a restart = %v", err)
		}
		withheld(t, d2, request("another", "second", ttl), "after a restart")
		second := begin(t, d2, waiter)
		if mode.name == "Exclusive" { // others are not queued in the grace
			queued(t, d2, waiter.Name, 1)
		}
		if err := renew(t, d1, l); err != nil {
			t.Errorf("Renew during the grace = %v", err)
		}
		free(t, l)
		next, _ := granted(t, second, ttl+enough, "second")
		if took := time.Since(restarted); took < ttl-500*time.Millisecond {
			t.Errorf("granted %v after the restart, with leases of %v", took, ttl)
		}
		if token(next) <= token(l) {
			t.Errorf("token %d after %d", token(next), token(l))
		}
		free(t, next)
		nothingLeft(t, node)
	})
}

// TestPromotion promotes a replica by hand. A request that comes before is not answered, and
// then waits for the grace period.
func TestPromotion(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	master := used(t, redistest.Single(t))
	replica := redistest.Single(t, "replica-read-only yes")
	d1 := open(t, at(master.Addr()))
	d2 := open(t, at(replica.Addr())) // while it is still a master: a replica is rejected
	follow(t, replica, master)
	first := take(t, d1, request("job", "first", ttl))
	waiter := begin(t, d2, request("job", "second", ttl))
	time.Sleep(300 * time.Millisecond) // which fails with READONLY
	pending(t, waiter, "second", "at a replica")
	replica.Must("REPLICAOF", "NO", "ONE") // and the old master lives: nobody has told it
	l, _ := granted(t, waiter, ttl+enough, "second")
	if left := valid(first, ttl); left > 0 {
		t.Errorf("granted while the first hold is valid for another %v", left)
	}
	if token(l) <= token(first) {
		t.Errorf("token %d after %d", token(l), token(first))
	}
}

// TestPromotedWithoutMemory promotes servers that know of no lock and are older than any lease, by
// hand and by an election. They may lack leases of the old master all the same, so they grant
// nothing yet.
func TestPromotedWithoutMemory(t *testing.T) {
	t.Parallel()
	byHand := func(n *redistest.Node) *redistest.Node {
		n.Must("REPLICAOF", "NO", "ONE")
		return n
	}
	for name, promoted := range map[string]func(*testing.T) *redistest.Node{
		"Unused": func(t *testing.T) *redistest.Node {
			n := redistest.Single(t)
			follow(t, n, redistest.Single(t))
			return byHand(n)
		},
		"NeverSynced": func(t *testing.T) *redistest.Node {
			n := redistest.Single(t)
			n.Must("REPLICAOF", "127.0.0.1", "1")
			return byHand(n)
		},
		"Cluster": func(t *testing.T) *redistest.Node {
			c := redistest.Cluster(t)
			slot := c.SlotOf("job")
			return c.WaitForFailover(slot, c.KillMasterOf(slot))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := promoted(t)
			aged(t, n)
			if got := askAt(n, ":{job}", "1000", "2000", "first", "x", "0"); got != "e 2000" {
				t.Errorf("the first request after the promotion: %q, want e 2000, which is the floor", got)
			}
		})
	}
}

// TestDemotedMaster promotes a replica behind the address that clients use, and makes a replica of
// the old master, as managed services do. Connections to it stay open, and it answers them. Holder
// and waiter get to the new master without a restart.
func TestDemotedMaster(t *testing.T) {
	t.Parallel()
	old, next := redistest.Single(t), redistest.Single(t)
	follow(t, next, old)
	proxy := livetest.NewProxy(t, old.Addr())
	d1 := open(t, at(proxy.Addr()), redislock.FailoverGrace(false))
	d2 := open(t, at(proxy.Addr()), redislock.FailoverGrace(false))
	first, second := take(t, d1, request("job", "first", time.Minute)), take(t, d1, request("task", "first", time.Minute))
	waiter := wait(t, d2, request("job", "second", time.Minute), 1)
	livetest.Await(t, "link", func() error {
		if got := fmt.Sprint(next.Must("ZCOUNT", "snib.q:{job}", "-inf", "4e15")); got != "1" {
			return fmt.Errorf("the replica knows %s waiters", got)
		}
		return nil
	})
	proxy.Redirect(next.Addr())
	next.Must("REPLICAOF", "NO", "ONE")
	old.Must("REPLICAOF", "127.0.0.1", "1") // so that it does not hear what the new master publishes
	free(t, first)
	granted(t, waiter, enough, "the waiter")
	wait(t, d2, request("task", "second", time.Minute), 1)
	listened(t, next, 1)
	if err := renewAgain(t, d1, second); err != nil {
		t.Errorf("Renew at the new master = %v", err)
	}
	free(t, take(t, d2, request("another job", "third", time.Minute)))
}

// TestLaggingReplica leads a holder to a replica that has not heard of its hold, as an address does
// that changes sides too early. That hold has not ended: the holder is told that the server can't
// serve it, and goes on when the address leads to the master again.
func TestLaggingReplica(t *testing.T) {
	t.Parallel()
	master, replica := used(t, redistest.Single(t)), redistest.Single(t)
	replica.Must("SET", "freed at the master", "its holder")
	replica.Must("REPLICAOF", "127.0.0.1", "1")
	proxy := livetest.NewProxy(t, master.Addr())
	d := open(t, at(proxy.Addr()))
	for _, mode := range modes {
		name := "job " + mode.name
		told := make(chan error, 1)
		req := mode.as(request(name, "holder", time.Minute))
		req.OnLost = func(err error) { told <- err }
		l := take(t, d, req)
		other := mode.as(request(name+" that may be freed late", "holder", time.Minute))
		freed := take(t, d, other)
		another := mode.as(request("freed at the master", "another", time.Minute))
		another.NoWait = true
		proxy.Redirect(replica.Addr())
		proxy.Cut()
		for what, do := range map[string]func(context.Context) error{
			"Renew":     func(ctx context.Context) error { return d.Renew(ctx, []driver.Lease{l})[0].Err },
			"SetHolder": func(ctx context.Context) error { return l.SetHolder(ctx, driver.Holder{}) },
			"Release":   freed.Release,
			"Break":     func(ctx context.Context) error { return d.Break(ctx, other.Name, freed.ID()) },
			"Withdraw":  func(ctx context.Context) error { return d.Withdraw(ctx, name, "a waiter") },
			"Status":    func(ctx context.Context) error { _, err := d.Status(ctx, name); return err },
			"Acquire":   func(ctx context.Context) error { _, err := d.Acquire(ctx, another); return err },
			"List":      func(ctx context.Context) error { return d.List(ctx, name, func(driver.Status) bool { return true }) },
		} {
			livetest.Await(t, "refusal by the replica", func() error { // first the call may meet a connection that is closed
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				err := do(ctx)
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("%s: %s at a replica that lags behind = %v, want ErrUnavailable", mode.name, what, err)
				} else if !strings.Contains(err.Error(), "READONLY") {
					return err
				}
				return nil
			})
		}
		proxy.Redirect(master.Addr())
		proxy.Cut()
		if err := renewAgain(t, d, l); err != nil {
			t.Errorf("%s: Renew at the master = %v", mode.name, err)
		}
		select {
		case err := <-told:
			t.Errorf("%s: the holder was told %v", mode.name, err)
		default:
		}
		free(t, l)
	}
}

// TestFlush deletes all keys. No waiter or holder can notice that by itself, so the lock is
// granted again. The holder learns of it at its next renewal, and the tokens keep growing.
func TestFlush(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	const ttl = 4 * time.Second // of those who get the lock from a server without memory
	aged(t, node)
	l := take(t, d1, request("job", "first", time.Minute))
	waiter := wait(t, d2, request("job", "second", ttl), 1)
	node.Must("FLUSHALL")
	next, took := granted(t, waiter, enough, "a waiter whose queue is gone")
	t.Logf("granted after %v", took)
	if err := renew(t, d1, l); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew after FLUSHALL = %v, want ErrLost", err)
	}
	if token(next) <= token(l) {
		t.Errorf("token %d after %d", token(next), token(l))
	}
	node.Must("FLUSHALL")
	again := take(t, d1, request("job", "third", ttl))
	if token(again) <= token(next) {
		t.Errorf("token %d after %d", token(again), token(next))
	}
	nothingLeft(t, node)
}

// TestScriptFlush makes the server forget the scripts, repeatedly.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	flush := func() { node.Must("SCRIPT", "FLUSH") }
	l := take(t, d1, request("job", "first", time.Minute))
	flush()
	if err := renew(t, d1, l); err != nil {
		t.Errorf("Renew = %v", err)
	}
	flush()
	waiter := wait(t, d2, request("job", "second", time.Minute), 1)
	flush()
	status(t, d1, "job")
	flush()
	free(t, l)
	flush()
	next, _ := granted(t, waiter, enough, "second")
	free(t, next)
	nothingLeft(t, node)
}

// TestNotReady sends requests to servers that report that they are not ready.
func TestNotReady(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		conf   []string
		refuse func(*testing.T, *redistest.Node)
		heal   func(*redistest.Node)
	}{
		{
			name:   "NOREPLICAS",
			refuse: func(_ *testing.T, n *redistest.Node) { n.Must("CONFIG", "SET", "min-replicas-to-write", 1) },
			heal:   func(n *redistest.Node) { n.Must("CONFIG", "SET", "min-replicas-to-write", 0) },
		},
		{
			name: "MASTERDOWN",
			conf: []string{"replica-serve-stale-data no"},
			refuse: func(t *testing.T, n *redistest.Node) {
				n.Must("REPLICAOF", "127.0.0.1", livetest.FreePort(t))
			},
			heal: func(n *redistest.Node) { n.Must("REPLICAOF", "NO", "ONE") },
		},
		{
			name: "LOADING",
			conf: []string{"enable-debug-command yes", "key-load-delay 1000", "loading-process-events-interval-bytes 1024"},
			refuse: func(t *testing.T, n *redistest.Node) {
				n.Must("DEBUG", "POPULATE", 60_000, "other", 100) // which takes a minute to load
				go func() { _, _ = n.Do("DEBUG", "RELOAD") }()    // it answers when that is done, or not in time
				livetest.Await(t, "loading", func() error {
					if _, err := n.Do("GET", "x"); err == nil || !strings.Contains(err.Error(), "LOADING") {
						return errors.New("not yet")
					}
					return nil
				})
			},
			heal: func(n *redistest.Node) { n.Must("CONFIG", "SET", "key-load-delay", 0) },
		},
	}
	slack := livetest.Slack(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := used(t, redistest.Single(t, tt.conf...))
			d := open(t, at(node.Addr()))
			const ttl = 5 * time.Minute
			held := take(t, d, request("held", "holder", ttl))
			tt.refuse(t, node)
			began := time.Now()
			patient := begin(t, d, request("job", "patient", ttl))
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			says := func(err error) bool { return strings.Contains(err.Error(), tt.name) }
			if err := d.Renew(short, []driver.Lease{held})[0].Err; err == nil || errors.Is(err, driver.ErrLost) {
				t.Errorf("Renew = %v, want what the server says", err)
			} else if !says(err) && short.Err() == nil {
				t.Errorf("Renew = %v, want %s", err, tt.name)
			}
			hurried := request("job", "hurried", ttl)
			hurried.NoWait = true
			if l, err := d.Acquire(t.Context(), hurried); err == nil || errors.Is(err, driver.ErrHeld) || !says(err) {
				t.Errorf("Acquire with NoWait = %v, %v, want %s", l, err, tt.name)
			}
			if took := time.Since(began); took > 8*time.Second+slack() {
				t.Errorf("Acquire with NoWait took %v", took)
			}
			pending(t, patient, "who waits", "before the server is ready")
			tt.heal(node)
			l, took := granted(t, patient, enough, "who waits for a server to be ready")
			t.Logf("granted after %v", took)
			free(t, l)
			if err := renew(t, d, held); err != nil {
				t.Errorf("Renew when the server is ready = %v", err)
			}
			free(t, held)
			for _, key := range keys(t, node) {
				if !strings.HasPrefix(key, "other:") {
					t.Errorf("the key %q is left", key)
				}
			}
		})
	}
}

// TestCluster moves the slot of a lock that is held and waited for, and then kills the slot's
// master.
func TestCluster(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	d1, d2 := open(t, o), open(t, o)
	// Any name works, and all keys of a lock lie in one slot.
	for _, name := range []string{"job", "a}b", "{tag}x", "snib.x"} {
		l := take(t, d1, request(name, "first", ttl))
		free(t, l)
		shared := request(name, "second", ttl)
		shared.Shared = true
		free(t, take(t, d2, shared))
	}
	slot := c.SlotOf("job")
	req := func(id string) driver.Request { return request("job", id, ttl) }

	l := take(t, d1, req("first"))
	stop := livetest.KeepUp(t, d1, l, ttl) // a slow machine may need longer than the TTL
	waiter := wait(t, d2, req("second"), 1)
	c.BeginMove(slot, c.MasterOtherThan(slot)).Finish()
	if err := renew(t, d1, l); err != nil {
		t.Errorf("Renew after the slot was moved = %v", err)
	}
	if st := status(t, d2, "job"); len(st.Holders) != 1 || st.Holders[0].Token != token(l) || len(st.Waiters) != 1 {
		t.Errorf("Status after the slot was moved = %+v", st)
	}
	refused(t, d2, req("third"), "after the slot was moved")
	stop()
	free(t, l)
	next, took := granted(t, waiter, ttl+enough, "who waited while the slot was moved")
	t.Logf("granted %v after a release at the new master", took)
	if token(next) <= token(l) {
		t.Errorf("token %d after %d", token(next), token(l))
	}

	stop = livetest.KeepUp(t, d2, next, ttl)
	move := c.BeginMove(slot, c.MasterOtherThan(slot)) // causes ASK and TRYAGAIN
	if err := renew(t, d2, next); err != nil {
		t.Errorf("Renew while the slot is on its way = %v", err)
	}
	waiter = begin(t, d1, req("fourth"))
	move.Keys()
	if err := renew(t, d2, next); err != nil {
		t.Errorf("Renew when the keys are moved, and not the slot = %v", err)
	}
	stop()
	released := make(chan error, 1)
	go func() { released <- next.Release(t.Context()) }()
	time.Sleep(200 * time.Millisecond) // in which the release meets the move
	move.Finish()
	if err := <-released; err != nil {
		t.Errorf("Release while the slot is on its way = %v", err)
	}
	last, took := granted(t, waiter, ttl+enough, "who came while the slot was on its way")
	t.Logf("granted %v after the move", took)
	if token(last) <= token(next) {
		t.Errorf("token %d after %d", token(last), token(next))
	}
	free(t, last)

	// The slot's master dies. The leases that the replica knows stay valid.
	const long = 20 * time.Second // in which a busy machine can fail over
	l = take(t, d1, request("job", "long", long))
	stop = livetest.KeepUp(t, d1, l, long)
	waiter = wait(t, d2, req("fifth"), 1)
	c.WaitUntilWell()
	old := c.KillMasterOf(slot)
	began := time.Now()
	if err := renewAgain(t, d1, l); err != nil {
		t.Fatalf("Renew after a failover to a replica that knew of the hold = %v", err)
	}
	t.Logf("renewed %v after the master had died", time.Since(began))
	c.WaitForFailover(slot, old)
	refused(t, d2, req("sixth"), "after the failover")
	stop()
	free(t, l)
	next, took = granted(t, waiter, long+enough, "who waited during the failover")
	stop = livetest.KeepUp(t, d2, next, ttl)
	t.Logf("granted %v after the release", took)
	if token(next) <= token(l) {
		t.Errorf("token %d after %d", token(next), token(l))
	}

	// Two nodes are down: one that all the others know to be down, and one that has just died.
	// The rest goes on.
	for _, n := range c.Nodes() {
		if n.Up() && info(t, n, "replication", "role") == "slave" {
			n.Kill()
			break
		}
	}
	if got := list(t, d1, "j"); !slices.Equal(got, []string{"job"}) {
		t.Errorf("List by a driver of before the failover = %q, want job", got)
	}
	d3 := open(t, o)
	if got := list(t, d3, "j"); !slices.Equal(got, []string{"job"}) {
		t.Errorf("List = %q, want job", got)
	}
	stop()
	free(t, next)
	for _, n := range c.Nodes() {
		if n.Up() && info(t, n, "replication", "role") == "master" {
			nothingLeft(t, n)
		}
	}
}
