package zklock

import (
	"context"
	"testing"
	"time"

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
	if err := a.readOwn(ctx); err == nil {
		t.Error("readOwn = nil without an answer")
	}
	a.node = "" // as try does; the race detector sees whatever still reads it
}
