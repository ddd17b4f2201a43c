package zklock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
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

// TestLockDelayWithoutConnection checks that a hold that is lost with its connection keeps the
// lock closed for its LockDelay, although the driver reaches the servers again.
func TestLockDelayWithoutConnection(t *testing.T) {
	const timeout, delay = 15 * time.Second, 4 * time.Second
	w := newTestbed(t, shared(t), zklock.Timeout(timeout))
	ours, theirs := newLocker(t, w.d), newLocker(t, w.other)
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	lost, err := ours.With(snib.LockDelay(delay)).Acquire(ctx, "lockDelayWithoutConnection")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.proxy.Cut()
	select {
	case <-lost.Lost():
	case <-ctx.Done():
		t.Fatal("the loss was not told")
	}
	if err := lost.Release(); !errors.Is(err, snib.ErrLost) {
		t.Errorf("Release of what was lost = %v, want ErrLost", err)
	}
	next, err := theirs.Acquire(ctx, "lockDelayWithoutConnection")
	if err != nil {
		t.Fatalf("Acquire after the hold was lost = %v", err)
	}
	if closed := time.Since(began); closed < delay {
		t.Errorf("the lock was closed for %v after the connection was cut, want %v", closed, delay)
	}
	if err := next.Release(); err != nil {
		t.Errorf("Release = %v", err)
	}
}
