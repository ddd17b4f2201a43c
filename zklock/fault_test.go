package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// A testbed is a driver on a server behind a proxy, with two observers that do not use the
// proxy.
type testbed struct {
	server *zktest.Server
	proxy  *livetest.Proxy
	d      *zklock.Driver // behind the proxy
	other  *zklock.Driver // connected directly, with a long session
	tree   tree
}

// newTestbed returns a testbed on a server. The session of the driver behind the proxy is short,
// unless opts ask for a longer one.
func newTestbed(t *testing.T, server *zktest.Server, opts ...zklock.Option) testbed {
	t.Helper()
	// An attempt that does not know yet that it has queued is retried for the dial timeout.
	opts = append([]zklock.Option{zklock.Timeout(testbedTimeout), zklock.DialTimeout(livetest.Patience)}, opts...)
	w := testbed{server: server}
	w.proxy = livetest.NewProxy(t, w.server.Addr())
	w.d = newDriver(t, []string{w.proxy.Addr()}, opts...)
	w.other = newDriver(t, []string{w.server.Addr()}, append(opts, zklock.Timeout(longTimeout))...)
	w.tree = newTree(t, w.server.Addr())
	release(t, acquire(t, w.d, request("warm", "d"))) // both have sessions, and the root exists
	release(t, acquire(t, w.other, request("warm", "other")))
	return w
}

func awaitWatches(t *testing.T, server *zktest.Server, want int) {
	t.Helper()
	livetest.Await(t, fmt.Sprintf("server with %d watches", want), func() error {
		if n, _ := server.Watches(t); n != want {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// TestCreateAnswerLost loses the answer to a create: the node is found again and not created
// twice.
func TestCreateAnswerLost(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]livetest.Ending{"Closed": livetest.ThenClose, "Hung": livetest.ThenHang} {
		t.Run(name, func(t *testing.T) {
			w := newTestbed(t, shared(t))
			lost := w.proxy.LoseAnswers(1, then, "/snib/createAnswerLost/_c_")
			release(t, acquire(t, w.other, request("createAnswerLost", "earlier"))) // the lock's folder exists
			waiting := livetest.Acquiring(t, w.d, request("createAnswerLost", "d"))
			<-lost
			l := waiting.Get(t)
			if names := w.tree.children("/snib/createAnswerLost"); len(names) != 1 {
				t.Errorf("the line is %q, want one node", names)
			}
			checkHeld(t, w.other, "createAnswerLost", "of a lock whose creation was not answered")
			release(t, l)
			w.tree.awaitChildren("/snib/createAnswerLost", 0)
		})
	}
}

// TestCreateGivenUp cancels an acquisition while the server does not answer: before it creates the
// node, after that, or when the node is read. Acquire returns at once, and does not take the lock
// for held. Its node is deleted when the server can be reached again.
func TestCreateGivenUp(t *testing.T) {
	slack := livetest.Slack(t)
	for _, lost := range []string{"", "/snib/createGivenUp/_c_", "-lock-0"} {
		w := newTestbed(t, shared(t), zklock.Timeout(longTimeout))
		holder := acquire(t, w.other, request("createGivenUp", "holder"))
		heal := w.proxy.Heal
		var hung <-chan struct{}
		if lost != "" {
			hung = w.proxy.LoseAnswers(1, livetest.ThenHang, lost)
		} else {
			heal = w.proxy.Stall() // the request arrives late
		}
		waiting := livetest.Acquiring(t, w.d, request("createGivenUp", "d"))
		if lost != "" {
			<-hung
			w.tree.awaitChildren("/snib/createGivenUp", 2)
		}
		began := time.Now()
		waiting.Cancel()
		err := waiting.End(t)
		if took := time.Since(began); took > time.Second+slack() {
			t.Errorf("Acquire returned %v after its context was done", took)
		}
		if !errors.Is(err, context.Canceled) || lost != "" && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire without the answer to %q = %v, want the end of its context, and ErrUnavailable", lost, err)
		}
		heal()
		release(t, holder)
		release(t, acquire(t, w.d, request("other", "d"))) // the driver is connected again
		w.tree.awaitChildren("/snib/createGivenUp", 0)
	}
}

// TestDeleteLost loses a release, whose context ends later or was done before. The lock becomes
// free when the server can be reached again, without another call of Release.
func TestDeleteLost(t *testing.T) {
	for name, left := range map[string]time.Duration{"Later": 100 * time.Millisecond, "Before": 0} {
		t.Run(name, func(t *testing.T) {
			// The timeout is long, so that the end of the session does not free the lock.
			w := newTestbed(t, shared(t), zklock.Timeout(longTimeout))
			l := acquire(t, w.d, request("deleteLost", "d"))
			heal := w.proxy.Sever()
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Release without a server = %v, want the end of its context", err)
			}
			if got := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(got, driver.ErrLost) {
				t.Errorf("Renew after Release = %v, want ErrLost", got)
			}
			w.tree.awaitChildren("/snib/deleteLost", 1)
			slack := livetest.Slack(t)
			began := time.Now()
			heal()
			w.tree.awaitChildren("/snib/deleteLost", 0)
			if took := time.Since(began); took > 5*time.Second+slack() {
				t.Errorf("the node went %v after the way was free", took)
			}
			release(t, l)
		})
	}
}

// TestExpiredWhileWaiting ends the session of a waiter. The waiter queues again with a node of
// its new session, and the old node blocks nobody.
func TestExpiredWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, shared(t))
	holder := acquire(t, w.other, request("expiredWhileWaiting", "holder"))
	waiting := livetest.Acquiring(t, w.d, request("expiredWhileWaiting", "d"))
	before := w.tree.awaitChildren("/snib/expiredWhileWaiting", 2)
	heal := w.proxy.Sever()
	w.tree.awaitChildren("/snib/expiredWhileWaiting", 1)
	heal()
	after := w.tree.awaitChildren("/snib/expiredWhileWaiting", 2)
	if node := newName(after, before); node == "" {
		t.Errorf("the line was %q and is %q, want another node for the waiter", before, after)
	}
	release(t, holder)
	l := waiting.Get(t)
	if l.Grant().Token <= holder.Grant().Token {
		t.Errorf("Token = %d after %d", l.Grant().Token, holder.Grant().Token)
	}
	checkHeld(t, w.other, "expiredWhileWaiting", "of a lock that was waited for in two sessions")
	release(t, l)
	w.tree.awaitChildren("/snib/expiredWhileWaiting", 0)
}

// newName returns one of the names that is not among the others.
func newName(names, others []string) string {
	for _, name := range names {
		if !slices.Contains(others, name) {
			return name
		}
	}
	return ""
}

// TestExpiredBetweenEventAndLook ends a waiter's session between the event that wakes it and
// its next look at the queue.
func TestExpiredBetweenEventAndLook(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, zktest.Single(t))
	holder := acquire(t, w.other, request("job", "holder"))
	waiting := livetest.Acquiring(t, w.d, request("job", "d"))
	w.tree.awaitChildren("/snib/job", 2)
	awaitWatches(t, w.server, 2) // of the node ahead, by both sides
	w.proxy.Delay(time.Hour, 0)  // the driver receives, but can't send
	time.Sleep(leaseTTL / 4)     // until the leader's last answer is too old for a lease
	release(t, holder)
	w.tree.awaitChildren("/snib/job", 0) // the session is over
	waiting.Running(t, "without an answer")
	next := acquire(t, w.other, request("job", "next"))
	w.proxy.Heal()
	w.proxy.Cut()
	w.tree.awaitChildren("/snib/job", 2)
	release(t, next)
	l := waiting.Get(t)
	if l.Grant().Token <= next.Grant().Token {
		t.Errorf("Token = %d, want more than the %d of the hold in between", l.Grant().Token, next.Grant().Token)
	}
	release(t, l)
}

// TestExpiredWhileAsking acquires while the server can't be reached and the session has
// expired. A new session serves the request.
func TestExpiredWhileAsking(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, shared(t))
	acquire(t, w.d, request("expiredWhileAsking", "earlier"))
	heal := w.proxy.Sever()
	w.tree.awaitChildren("/snib/expiredWhileAsking", 0) // the session is over
	waiting := livetest.Acquiring(t, w.d, request("expiredWhileAsking", "d"))
	heal()
	release(t, waiting.Get(t))
}

// TestWaiterDeleted deletes the node of a waiter. The waiter must not take a queue without its
// node for one in which it is first.
func TestWaiterDeleted(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, zktest.Single(t), zklock.Timeout(longTimeout))
	holder := acquire(t, w.other, request("job", "holder"))
	before := w.tree.awaitChildren("/snib/job", 1)
	waiting := livetest.Acquiring(t, w.d, request("job", "d"))
	node := newName(w.tree.awaitChildren("/snib/job", 2), before)
	awaitWatches(t, w.server, 2) // it waits, and the holder watches its own node
	if err := w.tree.Delete("/snib/job/"+node, -1); err != nil {
		t.Fatal(err)
	}
	release(t, holder)
	l := waiting.Get(t)
	checkHeld(t, w.other, "job", "after its only waiter was deleted, and queued anew")
	release(t, l)
}

// TestSuspendedIsLost cuts the connection. By default holds are lost with it although the
// session lives, and their nodes keep nobody out.
func TestSuspendedIsLost(t *testing.T) {
	slack := livetest.Slack(t)
	w := newTestbed(t, shared(t), zklock.Timeout(10*time.Second))
	l, lost := livetest.AcquireTold(t, w.d, request("suspendedIsLost", "d"))
	w.proxy.Cut()
	if took := livetest.AwaitLoss(t, lost, livetest.Patience); took > 3*time.Second+slack() { // a lease lasts longer
		t.Errorf("the loss was told after %v", took)
	}
	if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	began := time.Now()
	release(t, acquire(t, w.other, request("suspendedIsLost", "next")))
	if took := time.Since(began); took > 5*time.Second+slack() {
		t.Errorf("the lock was free %v after it was lost, want it when the connection is back", took)
	}
}

// TestKeepSuspended cuts the connection with KeepSuspended: the hold lives on, and no loss is
// reported.
func TestKeepSuspended(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, shared(t), zklock.Timeout(longTimeout), zklock.KeepSuspended())
	l, lost := livetest.AcquireTold(t, w.d, request("keepSuspended", "d"))
	renewed := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return w.d.Renew(ctx, []driver.Lease{l})[0].Err
	}
	livetest.Await(t, "renewal", renewed)
	heal := w.proxy.Sever()
	w.proxy.Cut()
	if err := renewed(); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Renew without a connection = %v, want ErrUnavailable", err)
	}
	heal()
	w.proxy.Cut() // the new connection, too, was severed
	livetest.Await(t, "renewal on another connection", renewed)
	select {
	case err := <-lost:
		t.Errorf("OnLost was called with %v", err)
	default:
	}
	// Later changes of the node are reported as on the first connection.
	if err := w.other.Break(t.Context(), "keepSuspended", l.ID()); err != nil {
		t.Fatalf("Break = %v", err)
	}
	livetest.AwaitLoss(t, lost, livetest.Patience)
}

// TestLastTransaction leads a session to a server that is behind what the session has seen: it
// knows nothing of the session. The server refuses the connection, and the session goes on with
// the first server as if nothing had been.
func TestLastTransaction(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, shared(t), zklock.Timeout(longTimeout), zklock.KeepSuspended())
	l, lost := livetest.AcquireTold(t, w.d, request("lastTransaction", "d"))
	behind := zktest.Single(t)
	// the length of a request for a session, and the protocol's version
	const handshake = "\x00\x00\x00\x2c\x00\x00\x00\x00"
	w.proxy.Redirect(behind.Addr())
	w.proxy.Cut()
	for _, what := range []string{"a connection to the server that is behind", "another one, after it refused the first"} {
		select {
		case <-w.proxy.Sent(handshake):
		case err := <-lost:
			t.Fatalf("OnLost was called with %v", err)
		case <-time.After(livetest.Patience):
			t.Fatalf("there was not %s within %v", what, livetest.Patience)
		}
	}
	w.proxy.Redirect(w.server.Addr())
	w.proxy.Cut()
	livetest.Await(t, "renewal on the first server", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := w.d.Renew(ctx, []driver.Lease{l})[0].Err
		if errors.Is(err, driver.ErrLost) {
			t.Fatalf("Renew = %v, want that the session goes on", err)
		}
		return err
	})
	checkHeld(t, w.other, "lastTransaction", "of a session that met a server behind it")
	release(t, l)
}

// TestChangedWhileRenewed changes the data right behind the answer to a renewal. That leaves no
// lease without a watch: a later deletion of the node is reported.
func TestChangedWhileRenewed(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, zktest.Single(t), zklock.Timeout(longTimeout))
	for round := range 6 { // a bug that luck can hide shows in one of them
		w.changeWhileRenewed(t, fmt.Sprint("job", round))
	}
}

func (b testbed) changeWhileRenewed(t *testing.T, name string) {
	t.Helper()
	const many = 16 // are watched at once
	var due []driver.Lease
	var nodes []string
	for i := range many {
		job := fmt.Sprint(name, "-", i)
		due = append(due, acquire(t, b.d, request(job, "d")))
		nodes = append(nodes, "/snib/"+job+"/"+b.tree.children("/snib/" + job)[0])
	}
	// Time for the changes, whose events arrive right behind the answers.
	b.proxy.Delay(0, 300*time.Millisecond)
	renewed := make(chan []driver.Renewal, 1)
	go func() { renewed <- b.d.Renew(t.Context(), due) }()
	awaitWatches(t, b.server, many)
	b.proxy.Delay(0, 0)
	for _, path := range nodes {
		if _, err := b.tree.Set(path, []byte("changed"), -1); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range <-renewed {
		if got.Err != nil {
			t.Fatalf("Renew of lease %d = %v", i, got.Err)
		}
	}
	for _, path := range nodes {
		if err := b.tree.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range b.d.Renew(t.Context(), due) {
		if !errors.Is(got.Err, driver.ErrLost) {
			t.Errorf("Renew of lease %d, whose node was deleted, = %v, want ErrLost", i, got.Err)
		}
	}
}

// TestChangedBeforeRenewal lets a watch fire during a renewal. The renewal looks at that node
// again, because it may be gone.
func TestChangedBeforeRenewal(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, shared(t), zklock.Timeout(longTimeout))
	l := acquire(t, w.d, request("changedBeforeRenewal", "d"))
	if err := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil { // the node is watched
		t.Fatal(err)
	}
	path := "/snib/changedBeforeRenewal/" + w.tree.children("/snib/changedBeforeRenewal")[0]
	w.proxy.Delay(0, time.Second) // the event arrives after the renewal was sent
	if _, err := w.tree.Set(path, []byte("changed"), -1); err != nil {
		t.Fatal(err)
	}
	if err := w.tree.Delete(path, -1); err != nil {
		t.Fatal(err)
	}
	if err := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew of a node that was changed, and then deleted, = %v, want ErrLost", err)
	}
}
