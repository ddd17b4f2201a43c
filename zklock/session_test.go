package zklock

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

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

// TestInspectGivenUp cancels a look at our own node. It must not read the attempt any more,
// which goes on with another node.
func TestInspectGivenUp(t *testing.T) {
	s, proxy := newTestSession(t, 10*time.Second)
	proxy.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	a := &attempt{d: s.d, s: s, folder: "/snib/job", node: "_c_0000000000"}
	if err := a.verifyOwn(ctx, a.readOwn()); err == nil {
		t.Error("recognise = nil without an answer")
	}
	a.node = "" // as try does; the race detector sees whatever still reads it
}

// TestFirst checks that the next waiter is the first when the node ahead was deleted, and
// nothing else happened to that node, to its own node or to the connection.
func TestFirst(t *testing.T) {
	pending := func() *watchEvent { return &watchEvent{changed: make(chan struct{})} }
	fired := func(deleted bool) *watchEvent {
		n := pending()
		n.deleted = deleted
		close(n.changed)
		return n
	}
	tests := []struct {
		name       string
		own, ahead *watchEvent
		want       bool
	}{
		{"AheadGone", pending(), fired(true), true},
		{"AheadThere", pending(), pending(), false},
		{"AheadChanged", pending(), fired(false), false},
		{"OwnGone", fired(true), fired(true), false},
		{"OwnChanged", fired(false), fired(true), false},
		{"OwnNotWatched", nil, fired(true), false},
		{"Disconnected", fired(false), fired(false), false},
	}
	for _, tt := range tests {
		if got := (&attempt{ownEvent: tt.own}).isFirstAfter(tt.ahead); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestHoldOwnGone deletes the own node. Before the lease is registered, that keeps it from
// being one; after that, it is reported to the lease.
func TestHoldOwnGone(t *testing.T) {
	s, _ := newTestSession(t, 10*time.Second)
	const path = "/snib/job/_c_0000000000"
	for _, gone := range []bool{true, false} {
		ownEvent := &watchEvent{changed: make(chan struct{})}
		s.mu.Lock()
		s.watches[watchKey{path: path}] = ownEvent
		s.mu.Unlock()
		l := &lease{s: s, path: path, done: make(chan struct{})}
		event := zk.Event{Type: zk.EventNodeDeleted, Path: path}
		if gone {
			s.onEvent(event)
		}
		if err := s.register(l, s.currentConnSeq(), ownEvent); (err != nil) != gone {
			t.Errorf("hold = %v after its node has gone: %v", err, gone)
		}
		s.onEvent(event)
		if l.ended() == gone {
			t.Errorf("the hold is lost: %v, after its node had gone before: %v", l.ended(), gone)
		}
	}
}
