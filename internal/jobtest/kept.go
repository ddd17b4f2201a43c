package jobtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// KeptLease checks a lease that a process keeps (snib.Keep): goroutines of the process use it again
// without a request to the store, and another process that wants it gets it long before it would
// end. open returns a new driver on the same store.
func KeptLease(t *testing.T, open func() driver.Driver) {
	t.Helper()
	const name, keep = "kept", 10 * time.Minute // much longer than what follows takes
	var kept int
	trace := &snib.Trace{Acquired: func(e snib.AcquiredEvent) {
		if e.Kept {
			kept++
		}
	}}
	here := locker(t, open()).With(snib.Keep(keep), snib.Tracing(trace))
	there := locker(t, open()).With(snib.Keep(keep))
	var last uint64
	cycle := func(who string, acquire func(context.Context, string) (*snib.Lock, error)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
		defer cancel()
		lock, err := acquire(ctx, name)
		switch {
		case err != nil:
			t.Fatalf("Acquire by %s = %v", who, err)
		case lock.Token() <= last:
			t.Errorf("Token of %s = %d after %d", who, lock.Token(), last)
		}
		last = lock.Token()
		if err := lock.Release(); err != nil {
			t.Fatalf("Release by %s = %v", who, err)
		}
	}

	const cycles = 10
	for range cycles {
		cycle("the process that keeps the lease", here.Acquire)
	}
	if kept != cycles-1 {
		t.Errorf("of %d acquisitions, %d used the kept lease, want all but the first", cycles, kept)
	}
	cycle("another process", there.Acquire) // which keeps it now
	cycle("the first process", here.Acquire)
	cycle("another process that does not wait", func(ctx context.Context, name string) (*snib.Lock, error) {
		for {
			lock, err := there.TryAcquire(ctx, name) // on a slow machine, not at once
			if !errors.Is(err, snib.ErrHeld) || ctx.Err() != nil {
				return lock, err
			}
		}
	})
	cycle("the same process", there.Acquire) // which does not keep what it had to give back at once
	cycle("the same process once more", there.Acquire)
	livetest.Await(t, "kept lease in the store", func() error { return shownAsKept(t, there, name) })
	cycle("the process that keeps the lease", there.Acquire)
}

// shownAsKept checks that the store shows the holder of a lock as one that only keeps its lease.
func shownAsKept(t *testing.T, l *snib.Locker, name string) error {
	t.Helper()
	st, err := l.Status(t.Context(), name)
	switch {
	case err != nil:
		return err
	case len(st.Holders) != 1 || !st.Holders[0].Holder.IsKept():
		return errors.New("the lease is not shown as kept")
	}
	return nil
}
