package zklock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

func newLocker(t *testing.T, d driver.Driver) *snib.Locker {
	t.Helper()
	l, err := snib.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestLostNotReleased has a hold that was reported lost because its renewals got no answer in
// time. It blocks nobody, although the session lives and nobody releases the hold.
func TestLostNotReleased(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	addrs := []string{server.Addr()}
	const timeout = 6 * time.Second // the session and the connection outlive the pause
	ours := newLocker(t, newDriver(t, addrs, zklock.Timeout(timeout)))
	theirs := newLocker(t, newDriver(t, addrs, zklock.Timeout(timeout)))
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	for _, next := range []*snib.Locker{theirs, ours} {
		if lock, err := next.Acquire(ctx, "warm"); err != nil { // so that it has a session
			t.Fatal(err)
		} else if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		lost, err := ours.Acquire(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		server.Hang()
		select {
		case <-lost.Lost():
		case <-ctx.Done():
			t.Error("the loss was not told while the server hung")
		}
		server.Resume()
		within, cancel := context.WithTimeout(ctx, timeout)
		lock, err := next.Acquire(within, "job")
		cancel()
		if err != nil {
			t.Fatalf("Acquire after the hold was lost = %v; in the process of the hold: %v", err, next == ours)
		}
		if lock.Token() <= lost.Token() {
			t.Errorf("Token = %d after %d", lock.Token(), lost.Token())
		}
		if err := lock.Release(); err != nil {
			t.Errorf("Release = %v", err)
		}
		_ = lost.Release()
	}
}

// TestLeaseEnds checks that a hold whose renewals fail is lost when its lease ends, whatever
// the session has answered meanwhile, and that a hold that was never renewed lasts with the
// session.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newTestbed(t, zklock.Timeout(8*time.Second)) // on a busy machine, it must outlast the hold
	l, lost := jobtest.AcquireTold(t, w.d, request("job", "d"))
	rest := acquire(t, w.d, request("rest", "d"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.d.Renew(ctx, []driver.Lease{l})[0].Err; err == nil {
		t.Fatal("Renew with a context that is done = nil")
	}
	jobtest.AwaitLoss(t, lost, livetest.Patience)
	w.tree.awaitChildren("/snib/job", 0)
	checkHeld(t, w.other, "rest", "after another hold of the session was lost")
	release(t, rest)
}

// TestLapse has a hold end in the process alone. It does not last with the session.
func TestLapse(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	jobtest.Lapse(t, func() driver.Driver { return newDriver(t, []string{server.Addr()}, zklock.Timeout(6*time.Second)) })
}

// TestLockDelayWithoutConnection checks that a hold that is lost with its connection keeps the
// lock closed for its LockDelay, although the driver reaches the servers again.
func TestLockDelayWithoutConnection(t *testing.T) {
	const timeout, delay = 15 * time.Second, 4 * time.Second
	w := newTestbed(t, zklock.Timeout(timeout))
	ours, theirs := newLocker(t, w.d), newLocker(t, w.other)
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	lost, err := ours.With(snib.LockDelay(delay)).Acquire(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	w.proxy.Cut()
	select {
	case <-lost.Lost():
	case <-ctx.Done():
		t.Fatal("the loss was not told")
	}
	began := time.Now()
	if err := lost.Release(); !errors.Is(err, snib.ErrLost) {
		t.Errorf("Release of what was lost = %v, want ErrLost", err)
	}
	next, err := theirs.Acquire(ctx, "job")
	if err != nil {
		t.Fatalf("Acquire after the hold was lost = %v", err)
	}
	if closed := time.Since(began); closed < delay/2 { // half allows for seeing the loss late
		t.Errorf("the lock was closed for %v after the hold was lost, want %v", closed, delay)
	}
	if err := next.Release(); err != nil {
		t.Errorf("Release = %v", err)
	}
}

// TestStaleHandOver checks that a lease that was ended by force is not handed over within the
// process.
func TestStaleHandOver(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	tree := newTree(t, server.Addr())
	in := newDriver(t, []string{server.Addr()})
	for name, end := range map[string]func(name, id string){
		"Broken": func(name, id string) {
			if err := in.Break(t.Context(), name, id); err != nil {
				t.Fatal(err)
			}
		},
		"Deleted": func(name, _ string) {
			st, err := in.Status(t.Context(), name)
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("Status = %+v, %v, want one holder", st, err)
			}
			folder := "/snib/" + strings.ReplaceAll(name, " ", "%20")
			if err := tree.Delete(tree.nodeOf(folder, st.Holders[0].Token), -1); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			jobtest.StaleHandOver(t, func() driver.Driver { return newDriver(t, []string{server.Addr()}) }, end)
		})
	}
}
