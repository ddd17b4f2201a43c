package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// behind is how far the server's clock is set back.
const behind = -time.Hour

// TestClockBack sets the server's clock back: a released lock is free at once, and what dead
// processes left behind is free one TTL after the next request for it.
func TestClockBack(t *testing.T) {
	clock := livetest.NewShim(t, "postgres")
	server := pgtest.Start(livetest.WithEnv(t, clock.Env()...))
	pool := dial(t, server.URL())
	tests := []struct {
		name string
		run  func(*testing.T, *pgtest.Server, *livetest.Shim, *pgxpool.Pool)
	}{
		{"Released", releasedBeforeStep},
		{"MinHold", keptAcrossStep},
		{"DeadHolder", diedBeforeStep},
		{"DeadHolderTried", triedAfterStep},
		{"DeadWaiter", waiterDiedBeforeStep},
		{"LiveHolder", livesAcrossStep},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clock.SetClock(0)
			tt.run(t, server, clock, pool)
		})
	}
}

// shortRequest returns a request for a short lease.
func shortRequest(name, owner string) driver.Request {
	req := request(name, owner)
	req.TTL = time.Second
	return req
}

func releasedBeforeStep(t *testing.T, _ *pgtest.Server, clock *livetest.Shim, pool *pgxpool.Pool) {
	d, other := newDriver(t, pool), newDriver(t, pool)
	l := acquire(t, d, request("released", "a"))
	shared := request("released shared", "a")
	shared.Shared = true
	reader := acquire(t, d, shared)
	shared.Owner = "b"
	second := acquire(t, d, shared)
	w := jobtest.Waiting(t, other, request("released", "b"))
	clock.SetClock(behind)
	release(t, l)
	release(t, w.Get(t))
	release(t, reader)
	release(t, second)
	for _, name := range []string{"released", "released shared"} {
		release(t, acquire(t, d, noWait(name, "c")))
	}
}

// keptAcrossStep releases leases with a MinHold: they are kept for no longer than that.
func keptAcrossStep(t *testing.T, _ *pgtest.Server, clock *livetest.Shim, pool *pgxpool.Pool) {
	d := newDriver(t, pool)
	req := shortRequest("kept", "a")
	req.MinHold = 500 * time.Millisecond
	early := acquire(t, d, req)
	req.Name = "kept before"
	release(t, acquire(t, d, req))
	clock.SetClock(behind)
	release(t, early)
	mustBeHeld(t, d, "kept", "before MinHold is over")
	mustBeHeld(t, d, "kept before", "before MinHold is over")
	release(t, acquire(t, d, request("kept", "b")))
	release(t, acquire(t, d, request("kept before", "b")))
}

func diedBeforeStep(t *testing.T, _ *pgtest.Server, clock *livetest.Shim, pool *pgxpool.Pool) {
	jobtest.Keep(t, newDriver(t, pool), shortRequest("died", "a"))()
	w := jobtest.Waiting(t, newDriver(t, pool), request("died", "b"))
	clock.SetClock(behind)
	release(t, w.Get(t))
}

// triedAfterStep has no waiter for the lock: requests that don't wait are enough to free it.
func triedAfterStep(t *testing.T, _ *pgtest.Server, clock *livetest.Shim, pool *pgxpool.Pool) {
	jobtest.Keep(t, newDriver(t, pool), shortRequest("tried", "a"))()
	clock.SetClock(behind)
	d := newDriver(t, pool)
	mustBeHeld(t, d, "tried", "of a lease that may be relied on")
	livetest.Await(t, "lease", func() error {
		l, err := d.Acquire(t.Context(), noWait("tried", "b"))
		if err != nil {
			return err
		}
		return l.Release(t.Context())
	})
}

func waiterDiedBeforeStep(t *testing.T, server *pgtest.Server, clock *livetest.Shim, pool *pgxpool.Pool) {
	d := newDriver(t, pool)
	l := acquire(t, d, request("queued", "a"))
	p := hold(t, server.URL(), false, request("queued", "b"))
	livetest.Await(t, "waiter in the queue", func() error {
		st, err := d.Status(t.Context(), "queued")
		if err == nil && len(st.Waiters) == 0 {
			err = errors.New("nobody waits")
		}
		return err
	})
	p.Kill()
	clock.SetClock(behind)
	release(t, l)
	release(t, acquire(t, d, request("queued", "c")))
}

// livesAcrossStep has a holder that renews, and that the step does not disturb.
func livesAcrossStep(t *testing.T, _ *pgtest.Server, clock *livetest.Shim, pool *pgxpool.Pool) {
	d := newDriver(t, pool)
	l := acquire(t, d, request("lives", "a"))
	w := jobtest.Waiting(t, newDriver(t, pool), request("lives", "b"))
	clock.SetClock(behind)
	if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew after the clock went back = %v", err)
	}
	w.Running(t, "while another holds")
	token := l.Grant().Token
	release(t, l)
	next := w.Get(t)
	if got := next.Grant().Token; got <= token {
		t.Errorf("Token after the clock went back = %d, want more than %d", got, token)
	}
	release(t, next)
}
