package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// A cutConn loses all requests while it is cut. Its subscriptions hear what they missed when that
// is over, but the server does not know that.
type cutConn struct {
	redislock.Conn
	cut atomic.Bool
	mu  sync.Mutex
	msg []func() // messages that were missed; guarded by mu
}

// mend ends the cut.
func (c *cutConn) mend() {
	c.mu.Lock()
	missed := c.msg
	c.msg = nil
	c.mu.Unlock()
	c.cut.Store(false)
	for _, hear := range missed {
		hear()
	}
}

func (c *cutConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	if !c.cut.Load() {
		return c.Conn.Eval(ctx, calls...)
	}
	lost := make([]redislock.Reply, len(calls))
	for i := range lost {
		lost[i].Err = errLost
	}
	return lost
}

func (c *cutConn) Subscribe(ctx context.Context, channel string, sharded bool, ready func(),
	message func(string)) error {
	return c.Conn.Subscribe(ctx, channel, sharded, ready, func(payload string) {
		if !c.cut.Load() {
			message(payload)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.msg = append(c.msg, func() { message(payload) })
	})
}

// TestHandedOverBeforeRestart hands a lock to a waiter that is cut off, and restarts the server
// with its memory. The waiter is told of its hold although nothing is granted then, and its lease
// counts from before that request.
func TestHandedOverBeforeRestart(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode lockMode) {
		node := used(t, redistest.Single(t))
		d := open(t, at(node.Addr()))
		c := new(cutConn)
		other := openOn(t, node, func(inner redislock.Conn) redislock.Conn { c.Conn = inner; return c })
		req, first := mode.as(request("job", "waiter", time.Minute)), request("job", "holder", time.Minute)
		if req.Slots > 0 {
			req.Slots, first.Slots = 1, 1
		}
		held := take(t, d, first)
		waiting := wait(t, other, req, 1)
		c.cut.Store(true)
		free(t, held)
		handed := status(t, d, "job").Holders
		if len(handed) != 1 || handed[0].ID != "waiter" {
			t.Fatalf("after the release the holders are %+v, want the waiter", handed)
		}
		node.Must("HSET", "snib.m", "r", "another server")
		withheld(t, d, request("another job", "other", time.Minute), "after the restart")
		c.mend()
		l, _ := granted(t, waiting, enough, "the waiter")
		left := status(t, d, "job").Holders[0].Left + time.Millisecond // which is cut off
		if start := l.Grant().Start; left < start.Add(req.TTL).Left(driver.Now()) {
			t.Errorf("the lease ends %v before its holder believes", start.Add(req.TTL).Left(driver.Now())-left)
		}
		if token(l) != handed[0].Token {
			t.Errorf("token %d, want that of the hand-over, %d", token(l), handed[0].Token)
		}
		free(t, l)
	})
}

// TestCutOffWaiter hands a lock to a waiter that is cut off, but whose connection the server still
// knows. Who waits behind it gets the lock long before the TTL is over.
func TestCutOffWaiter(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode lockMode) {
		node := used(t, redistest.Single(t))
		d, behind := open(t, at(node.Addr())), open(t, at(node.Addr()))
		c := new(cutConn)
		other := openOn(t, node, func(inner redislock.Conn) redislock.Conn { c.Conn = inner; return c })
		first, next := mode.as(request("job", "holder", time.Hour)), request("job", "behind", time.Hour)
		if first.Slots > 0 {
			first.Slots, next.Slots = 1, 1
		}
		req := first
		req.ID, first.Shared = "cut off", false
		held := take(t, d, first)
		wait(t, other, req, 1)
		waiting := wait(t, behind, next, 2)
		c.cut.Store(true)
		free(t, held)
		l, _ := granted(t, waiting, enough, "who waits behind it")
		free(t, l)
		c.mend()
	})
}

// A heartbeatConn holds back the next request to acquire once it is armed, and tells the driver
// that the request was lost.
type heartbeatConn struct {
	redislock.Conn
	mu     sync.Mutex
	armed  bool             // guarded by mu
	late   []redislock.Call // guarded by mu
	caught chan struct{}    // closed when there is one
}

func (c *heartbeatConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	c.mu.Lock()
	catch := c.armed && c.late == nil && slices.Contains(calls[0].Args, "A")
	if catch {
		late := calls[0]
		late.Keys, late.Args = slices.Clone(late.Keys), slices.Clone(late.Args)
		c.late = []redislock.Call{late}
		close(c.caught)
	}
	c.mu.Unlock()
	if catch {
		return []redislock.Reply{{Err: errLost}}
	}
	return c.Conn.Eval(ctx, calls...)
}

// TestLateHeartbeat delivers a heartbeat of a waiter when it has got the lock and released it. It
// takes neither the lock nor a place in the queue.
func TestLateHeartbeat(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode lockMode) {
		node := used(t, redistest.Single(t))
		d := open(t, at(node.Addr()))
		c := &heartbeatConn{caught: make(chan struct{})}
		other := openOn(t, node, func(inner redislock.Conn) redislock.Conn { c.Conn = inner; return c })
		first, req := request("job", "holder", time.Hour), mode.as(request("job", "waiter", time.Hour))
		if req.Slots > 0 {
			first.Slots, req.Slots = 1, 1
		}
		held := take(t, d, first)
		waiting := wait(t, other, req, 1)
		c.mu.Lock()
		c.armed = true
		c.mu.Unlock()
		awaitClosed(t, c.caught, "a heartbeat")
		free(t, held)
		l, _ := granted(t, waiting, enough, "the waiter")
		free(t, l)
		if r := c.Conn.Eval(t.Context(), c.late...)[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		if st := status(t, d, "job"); len(st.Holders)+len(st.Waiters) > 0 {
			t.Errorf("after a late heartbeat, the status is %+v", st)
		}
	})
}

// TestLateTake delivers a request when its repetition was granted and released. What the store
// then grants to nobody is withdrawn, long before the TTL is over.
func TestLateTake(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	c := &heartbeatConn{caught: make(chan struct{}), armed: true}
	d := openOn(t, node, func(inner redislock.Conn) redislock.Conn { c.Conn = inner; return c })
	free(t, take(t, d, request("job", "holder", time.Hour)))
	c.Conn.Eval(t.Context(), c.late...)
	awaitWithdrawal(t, open(t, at(node.Addr())))
}

// An evalConn makes its calls by eval.
type evalConn struct {
	redislock.Conn
	eval func(context.Context, ...redislock.Call) []redislock.Reply
}

func (c evalConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	return c.eval(ctx, calls...)
}

// TestNothingToWithdraw gives requests up whose connections were refused: there is nothing to
// withdraw.
func TestNothingToWithdraw(t *testing.T) {
	t.Parallel()
	down := false
	d := openOn(t, used(t, redistest.Single(t)), func(inner redislock.Conn) redislock.Conn {
		return evalConn{inner, func(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
			if !down {
				return inner.Eval(ctx, calls...)
			}
			if slices.Contains(calls[0].Args, "w") {
				t.Error("a withdrawal of a request that was not sent")
			}
			err := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			return []redislock.Reply{{Err: err}}
		}}
	})
	down = true
	for i := range 3 {
		req := request("job", fmt.Sprint("owner ", i), time.Minute)
		req.NoWait = true
		if l, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("Acquire = %v, %v, want ErrUnavailable", l, err)
		}
	}
}

// TestGrantMeetsClose closes a driver while the answer to its first request is under way. Acquire
// says so, and the lock is not left taken for its TTL.
func TestGrantMeetsClose(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	var d *redislock.Driver
	d = openOn(t, node, func(inner redislock.Conn) redislock.Conn {
		return evalConn{inner, func(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
			replies := inner.Eval(ctx, calls...)
			if slices.Contains(calls[0].Args, "A") {
				go d.Close()
				livetest.Await(t, "begin of Close", func() error {
					if _, err := d.Status(t.Context(), "job"); !errors.Is(err, driver.ErrClosed) {
						return fmt.Errorf("Status = %w", err)
					}
					return nil
				})
			}
			return replies
		}}
	})
	if l, err := d.Acquire(t.Context(), request("job", "holder", time.Hour)); !errors.Is(err, driver.ErrClosed) {
		t.Fatalf("Acquire = %v, %v, want ErrClosed", l, err)
	}
	awaitWithdrawal(t, open(t, at(node.Addr())))
}

// TestHeldAfterOutage has a request whose first try fails, and whose second one finds the lock
// taken. The caller is told that the store answers before the process listens to messages.
func TestHeldAfterOutage(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	take(t, open(t, at(node.Addr())), request("job", "holder", time.Hour))
	c := new(cutConn)
	d := openOn(t, node, func(inner redislock.Conn) redislock.Conn { c.Conn = inner; return lateConn{c, nil} })
	c.cut.Store(true)
	failed, healed := make(chan struct{}), make(chan struct{})
	noteFailure, noteEnd := sync.OnceFunc(func() { close(failed) }), sync.OnceFunc(func() { close(healed) })
	req := request("job", "waiter", time.Hour)
	req.OnWait = func(err error) {
		if err != nil {
			noteFailure()
		} else {
			noteEnd()
		}
	}
	begin(t, d, req)
	awaitClosed(t, failed, "OnWait in the outage")
	c.mend()
	awaitClosed(t, healed, "OnWait(nil)")
}
