package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// The way from a driver to a server, and what is seen from beside.
type way struct {
	server *zktest.Server
	proxy  *livetest.Proxy
	d      *zklock.Driver // behind the proxy
	other  *zklock.Driver // straight
	tree   tree
}

func newWay(t *testing.T, opts ...zklock.Option) way {
	t.Helper()
	w := way{server: zktest.Single(t)}
	w.proxy = livetest.NewProxy(t, w.server.Addr())
	w.d = newDriver(t, []string{w.proxy.Addr()}, opts...)
	w.other = newDriver(t, []string{w.server.Addr()}, opts...)
	w.tree = newTree(t, w.server.Addr())
	release(t, acquire(t, w.d, request("warm", "d"))) // both have their sessions, and the root is there
	release(t, acquire(t, w.other, request("warm", "other")))
	return w
}

func (w way) awaitWatches(t *testing.T, want int) {
	t.Helper()
	livetest.Await(t, fmt.Sprintf("server with %d watches", want), func() error {
		if n, _ := w.server.Watches(t); n != want {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// A create whose answer is lost is not done twice: the node is found again, and is the only one.
func TestCreateAnswerLost(t *testing.T) {
	for name, then := range map[string]livetest.Ending{"Closed": livetest.ThenClose, "Hung": livetest.ThenHang} {
		t.Run(name, func(t *testing.T) {
			w := newWay(t)
			lost := w.proxy.LoseAnswers(1, then, "/snib/job/_c_")
			release(t, acquire(t, w.other, request("job", "earlier"))) // its folder is there
			waiting := jobtest.Acquiring(t, w.d, request("job", "d"))
			<-lost
			l := waiting.Get(t)
			if names := w.tree.line("/snib/job"); len(names) != 1 {
				t.Errorf("the line is %q, want one node", names)
			}
			refused(t, w.other, "job", "of a lock whose creation was not answered")
			release(t, l)
			w.tree.await("/snib/job", 0)
		})
	}
}

// An acquisition that is given up while nobody answers returns at once, and its node goes when the server can be reached again.
func TestCreateGivenUp(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newWay(t)
		holder := acquire(t, w.other, request("job", "holder"))
		heal := func() {}
		if lost {
			w.proxy.LoseAnswers(1, livetest.ThenHang, "/snib/job/_c_")
		} else {
			heal = w.proxy.Stall() // the request arrives, but late
		}
		waiting := jobtest.Acquiring(t, w.d, request("job", "d"))
		if lost {
			w.tree.await("/snib/job", 2)
		}
		began := time.Now()
		waiting.Cancel()
		err := waiting.End(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("Acquire returned %v after its context was done", took)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire = %v, want the end of its context", err)
		}
		heal()
		release(t, holder)
		release(t, acquire(t, w.d, request("other", "d"))) // it has a connection again
		w.tree.await("/snib/job", 0)
	}
}

// A release whose answer is lost has freed the lock, and says so.
func TestDeleteAnswerLost(t *testing.T) {
	w := newWay(t, zklock.KeepSuspended())
	l := acquire(t, w.d, request("job", "d"))
	lost := w.proxy.LoseAnswers(1, livetest.ThenClose, "/snib/job/_c_")
	release(t, l)
	<-lost
	w.tree.await("/snib/job", 0)
}

// A release that does not reach the server frees the lock when one does again, although nobody says it a second time.
func TestDeleteLost(t *testing.T) {
	w := newWay(t, zklock.Timeout(10*time.Second)) // or the end of the session would do it
	l := acquire(t, w.d, request("job", "d"))
	heal := w.proxy.Sever()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Release without a server = %v, want the end of its context", err)
	}
	if got := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(got, driver.ErrLost) {
		t.Errorf("Renew after Release = %v, want ErrLost", got)
	}
	w.tree.await("/snib/job", 1)
	began := time.Now()
	heal()
	w.tree.await("/snib/job", 0)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the node went %v after the way was free", took)
	}
	release(t, l)
}

// A waiter whose session ended queues anew, by a node of its new session; the old one jams nothing.
func TestExpiredWhileWaiting(t *testing.T) {
	w := newWay(t)
	holder := acquire(t, w.other, request("job", "holder"))
	waiting := jobtest.Acquiring(t, w.d, request("job", "d"))
	before := w.tree.await("/snib/job", 2)
	heal := w.proxy.Sever()
	w.tree.await("/snib/job", 1)
	heal()
	after := w.tree.await("/snib/job", 2)
	if node := unlike(after, before); node == "" {
		t.Errorf("the line was %q and is %q, want another node for the waiter", before, after)
	}
	release(t, holder)
	l := waiting.Get(t)
	if l.Grant().Token <= holder.Grant().Token {
		t.Errorf("Token = %d after %d", l.Grant().Token, holder.Grant().Token)
	}
	refused(t, w.other, "job", "of a lock that was waited for in two sessions")
	release(t, l)
	w.tree.await("/snib/job", 0)
}

// unlike returns one of the names that is not among the others.
func unlike(names, others []string) string {
	for _, name := range names {
		found := false
		for _, other := range others {
			found = found || name == other
		}
		if !found {
			return name
		}
	}
	return ""
}

// Between the event that wakes a waiter and its look at the line, the session ends.
func TestExpiredBetweenEventAndLook(t *testing.T) {
	w := newWay(t)
	holder := acquire(t, w.other, request("job", "holder"))
	waiting := jobtest.Acquiring(t, w.d, request("job", "d"))
	w.tree.await("/snib/job", 2)
	w.awaitWatches(t, 3)        // of the predecessor, by both, and of its own node
	w.proxy.Delay(time.Hour, 0) // it hears, and is not heard
	time.Sleep(lease / 4)       // for longer than an answer of the leader's is good for
	release(t, holder)
	w.tree.await("/snib/job", 0) // the session is over
	waiting.Running(t, "without an answer")
	next := acquire(t, w.other, request("job", "next"))
	w.proxy.Heal()
	w.proxy.Cut()
	w.tree.await("/snib/job", 2)
	release(t, next)
	l := waiting.Get(t)
	if l.Grant().Token <= next.Grant().Token {
		t.Errorf("Token = %d, want more than the %d of who came in between", l.Grant().Token, next.Grant().Token)
	}
	release(t, l)
}

// Who asks while nobody can be reached, with a session that has ended meanwhile, is served by a new one.
func TestExpiredWhileAsking(t *testing.T) {
	w := newWay(t)
	acquire(t, w.d, request("job", "earlier"))
	heal := w.proxy.Sever()
	w.tree.await("/snib/job", 0) // the session is over
	waiting := jobtest.Acquiring(t, w.d, request("job", "d"))
	heal()
	release(t, waiting.Get(t))
}

// A waiter whose node somebody deleted does not take the line in which it is not for one in which it is the first.
func TestWaiterDeleted(t *testing.T) {
	w := newWay(t)
	holder := acquire(t, w.other, request("job", "holder"))
	before := w.tree.await("/snib/job", 1)
	waiting := jobtest.Acquiring(t, w.d, request("job", "d"))
	node := unlike(w.tree.await("/snib/job", 2), before)
	w.awaitWatches(t, 3) // it waits, and the holder watches its own node
	if err := w.tree.Delete("/snib/job/"+node, -1); err != nil {
		t.Fatal(err)
	}
	release(t, holder)
	l := waiting.Get(t)
	refused(t, w.other, "job", "after its only waiter was deleted, and queued anew")
	release(t, l)
}

// By default holds are lost with the connection, though the session lives, and their nodes keep nobody out.
func TestSuspendedIsLost(t *testing.T) {
	w := newWay(t, zklock.Timeout(10*time.Second))
	l, told := jobtest.AcquireTold(t, w.d, request("job", "d"))
	w.proxy.Cut()
	if took := jobtest.AwaitLoss(t, told, livetest.Patience); took > 3*time.Second { // a lease lasts longer
		t.Errorf("the loss was told after %v", took)
	}
	if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	began := time.Now()
	release(t, acquire(t, w.other, request("job", "next")))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the lock was free %v after it was lost, want it when the connection is back", took)
	}
}

// With KeepSuspended a hold outlasts its connection, and no loss is told.
func TestKeepSuspended(t *testing.T) {
	w := newWay(t, zklock.Timeout(10*time.Second), zklock.KeepSuspended())
	l, told := jobtest.AcquireTold(t, w.d, request("job", "d"))
	renewed := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return w.d.Renew(ctx, []driver.Lease{l})[0].Err
	}
	if err := renewed(); err != nil {
		t.Fatalf("Renew = %v", err)
	}
	w.proxy.Cut()
	livetest.Await(t, "renewal on another connection", renewed)
	select {
	case err := <-told:
		t.Errorf("OnLost was called with %v", err)
	default:
	}
	// What happens to the node from then on is told as on the first connection.
	in := driver.Inspector(w.other)
	if err := in.Break(t.Context(), "job", "d", l.Grant().Token); err != nil {
		t.Fatalf("Break = %v", err)
	}
	jobtest.AwaitLoss(t, told, livetest.Patience)
}

// With KeepSuspended, too, a hold that hears nothing more is lost before the ensemble ends the session.
func TestKeepSuspendedEnds(t *testing.T) {
	w := newWay(t, zklock.KeepSuspended())
	l, told := jobtest.AcquireTold(t, w.d, request("job", "d"))
	if err := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
		t.Fatal(err)
	}
	machine := livetest.Lateness()
	w.proxy.Sever()
	w.proxy.Cut()
	took := jobtest.AwaitLoss(t, told, livetest.Patience)
	if late := machine(); took > lease+alarm+late {
		t.Errorf("the loss was told after %v, on a machine that was late by %v; want %v", took, late, lease)
	}
	w.tree.await("/snib/job", 1) // the ensemble has not ended it
}

// The holder is told at once when its node is deleted, before its first renewal and later, and the
// next renewal says it, too.
func TestHolderDeleted(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		w := newWay(t)
		l, told := jobtest.AcquireTold(t, w.d, request("job", "d"))
		if renewed {
			if err := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
				t.Fatal(err)
			}
			// A change of the data uses the watch up; the renewal after it sets another one.
			if _, err := w.tree.Set("/snib/job/"+w.tree.line("/snib/job")[0], []byte("changed"), -1); err != nil {
				t.Fatal(err)
			}
			livetest.Await(t, "watch of the node", func() error {
				if err := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
					t.Fatal(err)
				}
				if n, _ := w.server.Watches(t); n == 0 {
					return errors.New("there is none")
				}
				return nil
			})
		}
		if err := w.tree.Delete("/snib/job/"+w.tree.line("/snib/job")[0], -1); err != nil {
			t.Fatal(err)
		}
		jobtest.AwaitLoss(t, told, livetest.Patience)
		if err := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(err, driver.ErrLost) {
			t.Errorf("Renew of a node that was deleted (renewed before: %v) = %v, want ErrLost", renewed, err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release of a node that was deleted = %v, want ErrLost", err)
		}
	}
}

// A change of the data that is told right behind the answer to a renewal leaves no hold unwatched: when the node is deleted
// later, that is told.
func TestChangedWhileRenewed(t *testing.T) {
	w := newWay(t, zklock.Timeout(10*time.Second))
	for round := range 6 { // what only luck can hide shows in one of them
		w.changeWhileRenewed(t, fmt.Sprint("job", round))
	}
}

func (w way) changeWhileRenewed(t *testing.T, name string) {
	t.Helper()
	const many = 16 // are watched at once
	var due []driver.Lease
	var nodes []string
	for i := range many {
		job := fmt.Sprint(name, "-", i)
		due = append(due, acquire(t, w.d, request(job, "d")))
		nodes = append(nodes, "/snib/"+job+"/"+w.tree.line("/snib/" + job)[0])
	}
	w.proxy.Delay(0, 300*time.Millisecond) // time for the changes, whose events arrive right behind the answers
	renewed := make(chan []driver.Renewal, 1)
	go func() { renewed <- w.d.Renew(t.Context(), due) }()
	livetest.Await(t, "watches", func() error {
		if n, _ := w.server.Watches(t); n != many {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	w.proxy.Delay(0, 0)
	for _, path := range nodes {
		if _, err := w.tree.Set(path, []byte("changed"), -1); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range <-renewed {
		if got.Err != nil {
			t.Fatalf("Renew of lease %d = %v", i, got.Err)
		}
	}
	for _, path := range nodes {
		if err := w.tree.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range w.d.Renew(t.Context(), due) {
		if !errors.Is(got.Err, driver.ErrLost) {
			t.Errorf("Renew of lease %d, whose node was deleted, = %v, want ErrLost", i, got.Err)
		}
	}
}

// A renewal that is under way when it is told that a watch was used up looks again at that node: it may be gone.
func TestChangedBeforeRenewal(t *testing.T) {
	w := newWay(t, zklock.Timeout(10*time.Second))
	l := acquire(t, w.d, request("job", "d"))
	if err := w.d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil { // it is watched
		t.Fatal(err)
	}
	path := "/snib/job/" + w.tree.line("/snib/job")[0]
	w.proxy.Delay(0, time.Second) // what is told of the change comes when the renewal has been sent
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

// A server that hangs is no reason to keep a caller who does not want to wait for long, nor is it
// a lock that is held.
func TestNoWaitHung(t *testing.T) {
	w := newWay(t, zklock.Timeout(30*time.Second), zklock.DialTimeout(30*time.Second))
	w.proxy.Stall()
	req := request("job", "d")
	req.NoWait = true
	began := time.Now()
	_, err := w.d.Acquire(t.Context(), req)
	if took := time.Since(began); took >= driver.AnswerTimeout+time.Second {
		t.Errorf("Acquire with NoWait returned after %v, want at most %v", took, driver.AnswerTimeout)
	}
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire with NoWait = %v, want ErrUnavailable", err)
	}
}
