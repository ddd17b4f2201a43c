package zklock

import (
	"context"
	"testing"
	"time"

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
	if err := a.inspect(ctx); err == nil {
		t.Error("inspect = nil without an answer")
	}
	a.name = "" // as try does: what is still read of it is a race
}
