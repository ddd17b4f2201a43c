package zklock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// newTestSession returns a session with a server behind a proxy.
func newTestSession(t *testing.T, timeout time.Duration) (*session, *livetest.Proxy) {
	t.Helper()
	proxy := livetest.NewProxy(t, zktest.Single(t).Addr())
	d, err := New([]string{proxy.Addr()}, Timeout(timeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := d.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, proxy
}

// TestUnansweredWithoutConnection has a request that the client library got just after it had lost
// the connection, and keeps. It is an outage, at once if the caller gives up.
func TestUnansweredWithoutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{d: &Driver{conf: config{dialTimeout: time.Hour}}, ctx: t.Context(), up: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		c := &call[string]{s: s, done: make(chan struct{})}
		if _, err := c.wait(ctx); !errors.Is(err, errDisconnected) {
			t.Errorf("wait = %v, want errDisconnected", err)
		}
		if path, err := s.find(ctx, "/snib/job", newID(), c); err == nil {
			t.Errorf("find = %q while the library may still send the request that makes the node", path)
		}
		cancel()
		if _, err := c.wait(ctx); !errors.Is(err, errDisconnected) || !errors.Is(err, context.Canceled) {
			t.Errorf("wait = %v, want errDisconnected and context.Canceled", err)
		}
	})
}

// TestAnsweredBesideClose closes the driver while a request is under way. Close waits for the
// answer, so the caller gets it.
func TestAnsweredBesideClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, closeSession := context.WithCancelCause(t.Context())
		closeSession(driver.ErrClosed)
		s := &session{d: &Driver{conf: config{dialTimeout: time.Hour}}, ctx: ctx}
		c := &call[int]{s: s, done: make(chan struct{})}
		time.AfterFunc(time.Second, func() { close(c.done) })
		if _, err := c.wait(t.Context()); err != nil {
			t.Errorf("wait = %v, want the answer", err)
		}
		for range 50 { // select chooses at random
			if err := (&lease{s: s}).awaitDeletion(t.Context(), &orphan{deleted: c.done}); err != nil {
				t.Fatalf("awaitDeletion of a node that is gone = %v", err)
			}
		}
	})
}

// TestReleaseAtEnd ends the session while a release gets no answer. Only the servers' word says
// that the node is gone. The hold was valid when the release began, so it is not said to be lost:
// the caller's work was alone. With KeepSuspended, that is not known.
func TestReleaseAtEnd(t *testing.T) {
	for _, tt := range []struct {
		conf        config
		minHold     time.Duration
		cause, want error
	}{
		{conf: config{dialTimeout: time.Hour}, cause: driver.ErrClosed, want: driver.ErrClosed},
		{conf: config{dialTimeout: time.Hour}, cause: errSessionOver},
		{conf: config{dialTimeout: time.Hour}, minHold: time.Hour, cause: errSessionOver, want: errSessionOver},
		{conf: config{dialTimeout: time.Hour, keepSuspended: true}, cause: errSessionOver, want: driver.ErrLost},
		{conf: config{dialTimeout: 1, keepSuspended: true}, cause: errSessionOver, want: driver.ErrLost},
		{conf: config{dialTimeout: time.Hour, keepSuspended: true}, minHold: time.Hour, cause: errSessionOver,
			want: driver.ErrLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &session{d: &Driver{conf: tt.conf, life: driverkit.NewLifecycle()}}
			s.ctx, s.cancel = context.WithCancelCause(t.Context())
			l := &lease{
				s: s, req: driver.Request{MinHold: tt.minHold}, grantedAt: driver.Now(),
				path: "/snib/job/" + nodePrefix + newID() + "-lock-0000000000", watchTimer: time.NewTimer(time.Hour),
				releaseSem: make(chan struct{}, 1), done: make(chan struct{}),
			}
			time.AfterFunc(time.Second, func() { s.cancel(tt.cause) })
			err := l.Release(t.Context())
			if !errors.Is(err, tt.want) || errors.Is(err, driver.ErrLost) != errors.Is(tt.want, driver.ErrLost) {
				t.Errorf("Release with MinHold %v and KeepSuspended %v while the session ends with %v = %v, want %v",
					tt.minHold, tt.conf.keepSuspended, tt.cause, err, tt.want)
			}
		})
	}
}

// TestInspectGivenUp cancels a look at our own node. It must not read the attempt any more,
// which goes on with another node.
func TestInspectGivenUp(t *testing.T) {
	s, proxy := newTestSession(t, 10*time.Second)
	proxy.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	a := &attempt{d: s.d, s: s, folder: "/snib/job", node: "_c_0000000000"}
	if err := a.readOwn(ctx); err == nil {
		t.Error("readOwn = nil without an answer")
	}
	a.node = "" // as try does; the race detector sees whatever still reads it
}

// TestWatchNotSetYet has a waiter of the same session whose request to watch the holder's node
// comes late. The holder does not rely on it: it learns that its node was deleted before.
func TestWatchNotSetYet(t *testing.T) {
	s, _ := newTestSession(t, 20*time.Second)
	lost := make(chan error, 1)
	req := driver.Request{Name: "job", ID: "a", TTL: time.Minute, OnLost: func(err error) { lost <- err }}
	h, err := s.d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	l := h.(*lease)
	l.watchTimer.Stop()
	key, ev := watchKey{path: l.path}, &watchEvent{changed: make(chan struct{})}
	s.mu.Lock()
	s.watches[key] = ev // the waiter has registered the event
	s.mu.Unlock()
	if err := l.watch(t.Context()); err != nil {
		t.Fatalf("watch = %v", err)
	}
	if err := s.d.Break(t.Context(), "job", "a"); err != nil {
		t.Fatalf("Break = %v", err)
	}
	_, err = key.read(s.conn, true)
	s.recordWatch(key, ev, err)
	if got := s.d.Renew(t.Context(), []driver.Lease{h})[0]; !errors.Is(got.Err, driver.ErrLost) {
		t.Errorf("Renew of a hold whose node was deleted = %+v, want ErrLost", got)
	}
	livetest.AwaitLoss(t, lost, livetest.Patience)
}

// TestLossNotReported connects a session anew without an event for the loss of the old connection.
// No watch of that connection counts any more.
func TestLossNotReported(t *testing.T) {
	ev := &watchEvent{changed: make(chan struct{})}
	s := &session{d: &Driver{}, up: make(chan struct{}), watches: map[watchKey]*watchEvent{{path: "/job"}: ev}}
	close(s.up)
	s.onConnected()
	if l := (&lease{watched: ev}); !l.needsWatch() {
		t.Error("after another connection, the watch of the last one counts")
	}
}

// TestShorterTimeout ends a session to which a later connection gives a shorter timeout: its
// holders would rely on it for longer than the leader keeps it. It lapses, and is not closed,
// because a LockDelay keeps others out for some time after the loss.
func TestShorterTimeout(t *testing.T) {
	s, proxy := newTestSession(t, 30*time.Second)
	req := driver.Request{Name: "job", ID: "a", TTL: time.Minute, LockDelay: 4 * time.Second}
	if _, err := s.d.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	s.onNegotiated(s.id, 27*time.Second, driver.Now())
	if err := context.Cause(s.ctx); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("the session goes on with a tenth less of its timeout: %v", err)
	}
	livetest.Await(t, "end of the connection", func() error {
		if state := s.conn.State(); state != zk.StateDisconnected {
			return fmt.Errorf("it is in the state %v", state)
		}
		return nil
	})
	other, err := New([]string{proxy.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if st, err := other.Status(t.Context(), "job"); err != nil || len(st.Holders) != 1 {
		t.Errorf("after the end of the session, Status = %+v, %v; want that its hold keeps others out", st, err)
	}
}

// TestShorterTimeoutThanBefore gives a session a shorter timeout than it had, which the options
// allow. The session goes on, without the holds that count on more.
func TestShorterTimeoutThanBefore(t *testing.T) {
	s, _ := newTestSession(t, 30*time.Second)
	s.onNegotiated(s.id, 40*time.Second, driver.Now()) // as from servers with a larger minSessionTimeout
	_, lost := livetest.AcquireTold(t, s.d, driver.Request{Name: "job", ID: "a", TTL: time.Minute})
	s.onNegotiated(s.id, 35*time.Second, driver.Now())
	livetest.AwaitLoss(t, lost, livetest.Patience)
	if err := context.Cause(s.ctx); err != nil {
		t.Errorf("the session has ended: %v", err)
	}
}

// TestOrphansInParallel has the sweeper wait for one node. It deletes another one meanwhile.
func TestOrphansInParallel(t *testing.T) {
	s, _ := newTestSession(t, 30*time.Second)
	path, err := s.conn.Create("/orphan", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	unanswered := &call[string]{s: s, done: make(chan struct{})}
	second := &orphan{path: path}
	s.mu.Lock()
	s.sweeper.orphans = []*orphan{{creation: unanswered}}
	s.mu.Unlock()
	s.addOrphan(second)
	select {
	case <-second.deleted:
	case <-time.After(livetest.Patience):
		t.Error("the sweeper waits for the first node, and does not delete the second")
	}
}
