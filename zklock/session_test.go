package zklock

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// begun returns a session with a server behind a proxy.
func begun(t *testing.T, timeout time.Duration) (*session, *livetest.Proxy) {
	t.Helper()
	proxy := livetest.NewProxy(t, zktest.Single(t).Addr())
	d := New([]string{proxy.Addr()}, Timeout(timeout))
	t.Cleanup(func() { d.Close() })
	s, err := d.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, proxy
}

// A look at our own node that is given up reads nothing of the attempt any more: that goes on with another node.
func TestInspectGivenUp(t *testing.T) {
	s, proxy := begun(t, 10*time.Second)
	proxy.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	a := &attempt{d: s.d, s: s, folder: "/snib/job", name: "_c_0000000000"}
	if err := a.recognise(ctx, a.inspect()); err == nil {
		t.Error("recognise = nil without an answer")
	}
	a.name = "" // as try does: what is still read of it is a race
}

// Who is next is the first when the one ahead has gone, and nothing else has happened: not to that one, not to its own node, not
// to the connection.
func TestFirst(t *testing.T) {
	quiet := func() *notice { return &notice{changed: make(chan struct{})} }
	told := func(gone bool) *notice {
		n := quiet()
		n.gone = gone
		close(n.changed)
		return n
	}
	tests := []struct {
		name       string
		own, ahead *notice
		want       bool
	}{
		{"AheadGone", quiet(), told(true), true},
		{"AheadThere", quiet(), quiet(), false},
		{"AheadChanged", quiet(), told(false), false},
		{"OwnGone", told(true), told(true), false},
		{"OwnChanged", told(false), told(true), false},
		{"OwnNotWatched", nil, told(true), false},
		{"Disconnected", told(false), told(false), false},
	}
	for _, tt := range tests {
		if got := (&attempt{own: tt.own}).first(tt.ahead); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What has happened to the own node before the hold is noted keeps it from being one; what happens after that is told to it.
func TestHoldOwnGone(t *testing.T) {
	s, _ := begun(t, 10*time.Second)
	const path = "/snib/job/_c_0000000000"
	for _, gone := range []bool{true, false} {
		own := &notice{changed: make(chan struct{})}
		s.mu.Lock()
		s.watches[watch{path: path}] = own
		s.mu.Unlock()
		h := &hold{s: s, path: path}
		event := zk.Event{Type: zk.EventNodeDeleted, Path: path}
		if gone {
			s.event(event)
		}
		if err := s.hold(h, s.linkNow(), own); (err != nil) != gone {
			t.Errorf("hold = %v after its node has gone: %v", err, gone)
		}
		s.event(event)
		if h.over() == gone {
			t.Errorf("the hold is lost: %v, after its node had gone before: %v", h.over(), gone)
		}
	}
}
