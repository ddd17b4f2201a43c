package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// TestNoHerd has many processes wait. Each watches one node, and no two the same, so a release
// wakes one waiter. The holder watches its own node, too.
func TestNoHerd(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	tree := newTree(t, server.Addr())
	const n = 20
	holder := acquire(t, newDriver(t, []string{server.Addr()}), request("job", "holder"))
	var waits []*livetest.Waiter
	for i := range n {
		waits = append(waits, livetest.Acquiring(t, newDriver(t, []string{server.Addr()}), request("job", fmt.Sprint(i))))
		tree.awaitChildren("/snib/job", i+2)
	}
	livetest.Await(t, "a watch for each waiter", func() error {
		if got, nodes := server.Watches(t); got != n+1 || nodes != n {
			return fmt.Errorf("there are %d, of %d nodes", got, nodes)
		}
		return nil
	})
	release(t, holder)
	for i, w := range waits {
		l := w.Get(t)
		awaitWatches(t, server, n-i) // of those who still wait, and of the holder on its own node
		release(t, l)
	}
}

// TestWatchesDoNotPileUp checks that cancelled waits leave no watches behind that accumulate.
func TestWatchesDoNotPileUp(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	tree := newTree(t, server.Addr())
	d := newDriver(t, []string{server.Addr()})
	acquire(t, newDriver(t, []string{server.Addr()}), request("job", "holder"))
	for i := range 20 {
		w := livetest.Acquiring(t, d, request("job", fmt.Sprint(i)))
		livetest.Await(t, "watch", func() error {
			if n, _ := server.Watches(t); n < 2 || len(tree.children("/snib/job")) != 2 {
				return errors.New("there is none")
			}
			return nil
		})
		w.Cancel()
		if err := w.End(t); !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire = %v, want the end of its context", err)
		}
	}
	awaitWatches(t, server, 2) // of all 20 waits for one node, and of the holder
}

// TestUndeletable cancels a waiter whose node may not be deleted. It keeps no node of another lock,
// and goes when the ACL allows that again.
func TestUndeletable(t *testing.T) {
	t.Parallel()
	server := shared(t)
	tree, d := newTree(t, server.Addr()), newDriver(t, []string{server.Addr()})
	for _, name := range []string{"undeletable", "undeletableOther"} {
		acquire(t, d, request(name, "holder"))
		tree.SetACL("/snib/undeletable", zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		w := livetest.Waiting(t, d, request(name, "waiter"))
		w.Cancel()
		_ = w.End(t) // the end of its context
	}
	tree.awaitChildren("/snib/undeletableOther", 1)
	tree.awaitChildren("/snib/undeletable", 2)
	tree.SetACL("/snib/undeletable", zk.WorldACL(zk.PermAll), -1)
	tree.awaitChildren("/snib/undeletable", 1)
}

// TestFolderComesAgain checks that tokens and the order continue when the folder of a lock is
// removed and created again, although its numbers restart at 0.
func TestFolderComesAgain(t *testing.T) {
	t.Parallel()
	server := shared(t)
	tree := newTree(t, server.Addr())
	addrs := []string{server.Addr()}
	d1, d2, d3 := newDriver(t, addrs), newDriver(t, addrs), newDriver(t, addrs)
	var last uint64
	for range 3 {
		l := acquire(t, d1, request("folderComesAgain", "a"))
		if got := tree.children("/snib/folderComesAgain")[0]; got[len(got)-10:] > "0000000001" {
			t.Errorf("the node is %q, want one of a new folder", got)
		}
		w2 := livetest.Acquiring(t, d2, request("folderComesAgain", "b"))
		tree.awaitChildren("/snib/folderComesAgain", 2)
		w3 := livetest.Acquiring(t, d3, request("folderComesAgain", "c"))
		tree.awaitChildren("/snib/folderComesAgain", 3)
		for _, l := range []driver.Lease{l, nil, nil} {
			switch {
			case l != nil:
			case w2 != nil:
				l, w2 = w2.Get(t), nil
				w3.Running(t, "before an earlier one")
			default:
				l = w3.Get(t)
			}
			if l.Grant().Token <= last {
				t.Errorf("Token = %d after %d", l.Grant().Token, last)
			}
			last = l.Grant().Token
			release(t, l)
		}
		// It is a container: the server removes it, in tests twice a second.
		livetest.Await(t, "end of the empty folder", func() error {
			if ok, _, err := tree.Exists("/snib/folderComesAgain"); ok || err != nil {
				return fmt.Errorf("it is there: %v, %w", ok, err)
			}
			return nil
		})
	}
}

// TestMinHoldLapsed has a node that MinHold kept, whose process is gone and whose time is over.
// It is not shown as a hold, and an acquisition with NoWait succeeds, also one of another kind.
func TestMinHoldLapsed(t *testing.T) {
	t.Parallel()
	server := shared(t)
	gone, d := newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()})
	for _, req := range []driver.Request{request("minHoldLapsed", "a"), {Name: "minHoldLapsed slots", ID: "a", TTL: time.Minute, Slots: 1}} {
		req.MinHold = 500 * time.Millisecond
		release(t, acquire(t, gone, req))
	}
	gone.Close()
	for _, name := range []string{"minHoldLapsed", "minHoldLapsed slots"} {
		livetest.Await(t, "end of what MinHold keeps", func() error {
			if st, err := d.Status(t.Context(), name); err != nil || len(st.Holders) > 0 {
				return fmt.Errorf("Status = %+v, %w", st, err)
			}
			return nil
		})
	}
	if err := d.List(t.Context(), "minHoldLapsed", func(st driver.Status) bool { t.Errorf("List shows %+v", st); return true }); err != nil {
		t.Error(err)
	}
	req := request("minHoldLapsed", "b")
	req.NoWait = true
	if _, err := d.Acquire(t.Context(), req); err != nil {
		t.Errorf("Acquire with NoWait = %v, want the lock", err)
	}
	req.Name = "minHoldLapsed slots"
	if _, err := d.Acquire(t.Context(), req); err != nil {
		t.Errorf("Acquire with NoWait of what was a semaphore = %v, want the lock", err)
	}
}

// TestMinHoldAnswerLost loses an answer when MinHold begins, which does not change its length.
func TestMinHoldAnswerLost(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, shared(t), zklock.Timeout(longTimeout), zklock.KeepSuspended())
	req := request("minHoldAnswerLost", "d")
	req.MinHold = time.Second
	l := acquire(t, w.d, req)
	lost := w.proxy.LoseAnswers(1, livetest.ThenClose, "/snib/minHoldAnswerLost/_k_")
	slack := livetest.Slack(t)
	release(t, l)
	<-lost
	next := acquire(t, w.other, request("minHoldAnswerLost", "next"))
	if kept := driver.Now().Sub(l.Grant().Start); kept < req.MinHold || kept > req.MinHold+5*time.Second+slack() {
		t.Errorf("the lock was given to the next %v after the grant, want %v", kept, req.MinHold)
	}
	release(t, next)
	w.tree.awaitChildren("/snib/minHoldAnswerLost", 0)
}

// TestMinHoldOverBeforeRetry loses the answer to a release, and MinHold ends before the driver is
// connected again. The release was executed, so it succeeds.
func TestMinHoldOverBeforeRetry(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, shared(t), zklock.Timeout(longTimeout))
	req := request("minHoldOverBeforeRetry", "d")
	req.MinHold = 1500 * time.Millisecond
	l := acquire(t, w.d, req)
	lost := w.proxy.LoseAnswers(1, livetest.ThenClose, "/snib/minHoldOverBeforeRetry/_k_")
	released := make(chan error, 1)
	go func() { released <- l.Release(t.Context()) }()
	<-lost
	heal := w.proxy.Sever()
	next := acquire(t, w.other, request("minHoldOverBeforeRetry", "next")) // it has deleted the kept node
	heal()
	w.proxy.Cut()
	if err := <-released; err != nil {
		t.Errorf("Release that was executed = %v", err)
	}
	release(t, next)
}

// TestSlotsLetInAtOnce has a waiter behind one that is granted before it ever looked at the
// queue. The waiter learns of that, too, and is the first of the waiters then.
func TestSlotsLetInAtOnce(t *testing.T) {
	// The timeout is the longest time between two checks of the queue.
	w := newTestbed(t, zktest.Single(t), zklock.Timeout(30*time.Second))
	newRequest := func(id string) driver.Request {
		req := request("job", id)
		req.Slots = 2
		return req
	}
	first, second := acquire(t, w.other, newRequest("first")), acquire(t, w.other, newRequest("second"))
	// The third waiter's node exists, and it does not know.
	lost := w.proxy.LoseAnswers(1, livetest.ThenHang, "/snib/job/_c_")
	third := livetest.Acquiring(t, w.d, newRequest("third"))
	<-lost
	w.tree.awaitChildren("/snib/job", 3)
	fourth := livetest.Acquiring(t, w.other, newRequest("fourth"))
	w.tree.awaitChildren("/snib/job", 4)
	awaitWatches(t, w.server, 3) // of the third, and of the holders on their own nodes
	release(t, first)
	w.proxy.Heal()
	held := third.Get(t)
	slack := livetest.Slack(t)
	began := time.Now()
	release(t, second)
	release(t, fourth.Get(t))
	if took := time.Since(began); took > 5*time.Second+slack() {
		t.Errorf("the fourth was served %v after there was room", took)
	}
	release(t, held)
}

// TestLockerKnowsFirst cuts a holder off. By its own clock, it stops before the ensemble gives
// its lock to another.
func TestLockerKnowsFirst(t *testing.T) {
	for name, opts := range map[string][]zklock.Option{"Default": nil, "KeepSuspended": {zklock.KeepSuspended()}} {
		t.Run(name, func(t *testing.T) {
			w := newTestbed(t, shared(t), opts...)
			locker, err := snib.New(w.d)
			if err != nil {
				t.Fatal(err)
			}
			lock, err := locker.Acquire(t.Context(), "lockerKnowsFirst")
			if err != nil {
				t.Fatal(err)
			}
			next := livetest.Acquiring(t, w.other, request("lockerKnowsFirst", "next"))
			w.tree.awaitChildren("/snib/lockerKnowsFirst", 2)
			w.proxy.Sever()
			began, machine := time.Now(), livetest.Lateness(t)
			select {
			case <-lock.Context().Done():
			case <-next.Done():
				if lock.Context().Err() == nil {
					t.Fatal("the lock was given to another while the holder relied on it")
				}
			}
			took, late := time.Since(began), machine()
			if took > leaseTTL+maxLossDelay+10*late || !errors.Is(context.Cause(lock.Context()), snib.ErrLost) {
				t.Errorf("lost after %v, %v, on a machine that was late by %v; want ErrLost after %v", took, context.Cause(lock.Context()), late, leaseTTL)
			}
			next.Get(t)
		})
	}
}
