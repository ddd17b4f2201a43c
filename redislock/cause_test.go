package redislock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// errElsewhere is the cause of a cancellation that looks like a refusal: an errgroup cancels
// with it if another lock is held.
var errElsewhere = fmt.Errorf("another lock: %w", driver.ErrHeld)

// TestAnyCause cancels acquisitions with errElsewhere. Neither a place in the queue nor a grant
// whose answer came too late is left.
func TestAnyCause(t *testing.T) {
	t.Parallel()
	for name, o := range singleAndCluster(t) {
		t.Run(name, func(t *testing.T) {
			route, proxies := livetest.Detour(t, o.InitAddress...)
			detour := o
			detour.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", route(addr))
			}
			there, here := open(t, o), open(t, detour)
			t.Run("Unanswered", func(t *testing.T) { cancelUnanswered(t, there, here, proxies) })
		})
	}
}

// cancelUnanswered cancels a request that is on its way to the server.
func cancelUnanswered(t *testing.T, there, here driver.Driver, proxies []*livetest.Proxy) {
	const name = "unanswered"
	free(t, take(t, here, request(name, "earlier", time.Minute))) // its connection stays
	deliver := livetest.All(proxies, (*livetest.Proxy).Stall)
	sent := make(chan struct{}, len(proxies))
	for _, p := range proxies {
		seen := p.Sent(name)
		go func() {
			select {
			case <-seen:
				sent <- struct{}{}
			case <-t.Context().Done():
			}
		}()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	w := beginWith(ctx, here, request(name, "gone", time.Minute))
	awaitClosed(t, sent, "the request")
	cancel(errElsewhere)
	mustEndElsewhere(t, w)
	deliver()
	mustBecomeFree(t, there, name)
}

func mustEndElsewhere(t *testing.T, w <-chan result) {
	t.Helper()
	if r := <-w; r.lease != nil || !errors.Is(r.err, errElsewhere) {
		t.Fatalf("Acquire that was cancelled = %v, %v, want the cause %q", r.lease, r.err, errElsewhere)
	}
}

// mustBecomeFree checks that a lock is free soon, and sooner than a lease of a minute would end.
func mustBecomeFree(t *testing.T, d driver.Driver, name string) {
	t.Helper()
	probe := request(name, "probe", time.Minute)
	probe.NoWait = true
	livetest.Await(t, "lease", func() error {
		l, err := d.Acquire(t.Context(), probe)
		if err == nil {
			free(t, l)
		}
		return err
	})
}
