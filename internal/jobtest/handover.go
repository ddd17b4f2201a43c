package jobtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// StaleHandOver checks that a lease which the store has ended is not handed over inside a
// process. Goroutines of one Locker queue for a lock. end makes the store end the lease of
// the first one. Then another process and the next goroutine get the lock, in any order.
// When the first goroutine releases, it must learn that its hold was lost, and tokens must
// rise in the order of the grants. open returns a new driver on the same store; the
// goroutines use the first one.
func StaleHandOver(t *testing.T, open func() driver.Driver, end func(name, id string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	ours, theirs := locker(t, open()), locker(t, open())
	first, second := acquireQueued(ctx, t, ours)
	end(first.Name(), first.ID())

	other := make(chan acquisition, 1)
	go func() {
		lock, err := theirs.Acquire(ctx, first.Name())
		other <- acquisition{lock, err, time.Now()}
	}()
	last := first.Token()
	checkGrant := func(who string, acquired acquisition) {
		t.Helper()
		switch {
		case acquired.err != nil:
			t.Fatalf("Acquire by %s after the lease was ended = %v", who, acquired.err)
		case acquired.Token() <= last:
			t.Errorf("token of %s = %d, want more than %d, which was granted before", who, acquired.Token(), last)
		}
		if err := acquired.Release(); err != nil {
			t.Errorf("Release by %s = %v", who, err)
		}
		last = acquired.Token()
	}
	// If the driver reports the loss, the next goroutine sends its request at once, and may be
	// served before the other process.
	select {
	case acquired := <-other:
		checkGrant("the other process", acquired)
		other = nil
	case acquired := <-second:
		checkGrant("the next goroutine", acquired)
		second = nil
	}
	// The Locker may hand the lease over while the last confirmation is at most 10 ms old.
	livetest.Await(t, "end of the time for which a confirmation counts", func() error {
		if since := time.Since(first.at); since < 20*time.Millisecond {
			return errors.New("it is too early")
		}
		return nil
	})
	if err := first.Release(); !errors.Is(err, snib.ErrLost) {
		t.Errorf("Release of a hold whose lease the store had ended = %v, want ErrLost", err)
	}
	select {
	case acquired := <-other:
		checkGrant("the other process", acquired)
	case acquired := <-second:
		checkGrant("the next goroutine", acquired)
	}
}

// An acquisition is the result of an Acquire.
type acquisition struct {
	*snib.Lock
	err error
	at  time.Time
}

// acquireQueued returns a hold behind which another goroutine of the same Locker waits, and a
// channel for the result of that goroutine. The lease of the hold was granted while both waited,
// so it has a token for each if the backend reserves tokens.
func acquireQueued(ctx context.Context, t *testing.T, l *snib.Locker) (first acquisition, second <-chan acquisition) {
	t.Helper()
	const waiters = 2
	for i := range 100 {
		name := fmt.Sprint("stale hand-over ", i)
		queued := 0
		traced := l.With(snib.Tracing(&snib.Trace{Released: func(e snib.ReleasedEvent) { queued = e.Queued }}))
		lock, err := traced.Acquire(ctx, name)
		if err != nil {
			t.Fatalf("Acquire = %v", err)
		}
		started, got := make(chan struct{}, waiters), make(chan acquisition, waiters)
		waiting := l.With(snib.Tracing(&snib.Trace{WaitStarted: func(snib.WaitStartedEvent) { started <- struct{}{} }}))
		for range waiters {
			go func() {
				lock, err := waiting.Acquire(ctx, name)
				got <- acquisition{lock, err, time.Now()}
			}()
			<-started
		}
		if err := lock.Release(); err != nil {
			t.Fatalf("Release = %v", err)
		}
		if first = <-got; first.err != nil {
			t.Fatalf("Acquire by a local waiter = %v", first.err)
		}
		if queued == waiters {
			return first, got
		}
		_ = first.Release() // the hold was released before both had queued
		if one := <-got; one.err == nil {
			_ = one.Release()
		}
	}
	t.Fatal("the waiters never queued in time")
	return acquisition{}, nil
}

func locker(t testing.TB, d driver.Driver) *snib.Locker {
	t.Helper()
	l, err := snib.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
