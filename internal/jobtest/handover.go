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

// StaleHandOver checks that a lease which the store has ended is not handed on inside a process. Goroutines of one Locker
// queue for a lock; end has the store end the lease of the first one; another process and the next goroutine get the lock,
// whichever is first. Then the first goroutine releases: it must learn that its hold was lost; and tokens must rise in the
// order of the grants. open returns a driver of its own on the same store; the first one is that of the goroutines.
func StaleHandOver(t *testing.T, open func() driver.Driver, end func(name, owner string, token uint64)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	ours, theirs := locker(t, open()), locker(t, open())
	first, second := queued(ctx, t, ours)
	end(first.Name(), first.Owner(), first.Token())

	other := make(chan acquired, 1)
	go func() {
		lock, err := theirs.Acquire(ctx, first.Name())
		other <- acquired{lock, err, time.Now()}
	}()
	last := first.Token()
	grant := func(who string, a acquired) {
		t.Helper()
		switch {
		case a.err != nil:
			t.Fatalf("Acquire by %s after the lease was ended = %v", who, a.err)
		case a.Token() <= last:
			t.Errorf("token of %s = %d, want more than %d, which was granted before", who, a.Token(), last)
		}
		if err := a.Release(); err != nil {
			t.Errorf("Release by %s = %v", who, err)
		}
		last = a.Token()
	}
	// If the loss is told, the next goroutine asks the store at once, and may be there before the other process.
	select {
	case a := <-other:
		grant("the other process", a)
		other = nil
	case a := <-second:
		grant("the next goroutine", a)
		second = nil
	}
	// The Locker may take the lease for alive as long as the store has confirmed it within 10 ms.
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
	case a := <-other:
		grant("the other process", a)
	case a := <-second:
		grant("the next goroutine", a)
	}
}

// An acquired is what an Acquire returned.
type acquired struct {
	*snib.Lock
	err error
	at  time.Time
}

// queued returns a hold, behind which another goroutine of the same Locker waits, and what that one gets. The lease of the
// hold was granted when both waited, so it has a token for each if the backend reserves tokens.
func queued(ctx context.Context, t *testing.T, l *snib.Locker) (first acquired, second <-chan acquired) {
	t.Helper()
	const waiters = 2
	for i := range 100 {
		name := fmt.Sprint("stale hand-over ", i)
		seen := 0
		lock, err := l.With(snib.Tracing(&snib.Trace{Released: func(e snib.Event) { seen = e.Queued }})).Acquire(ctx, name)
		if err != nil {
			t.Fatalf("Acquire = %v", err)
		}
		started, got := make(chan struct{}, waiters), make(chan acquired, waiters)
		waiting := l.With(snib.Tracing(&snib.Trace{WaitStarted: func(snib.Event) { started <- struct{}{} }}))
		for range waiters {
			go func() {
				lock, err := waiting.Acquire(ctx, name)
				got <- acquired{lock, err, time.Now()}
			}()
			<-started
		}
		if err := lock.Release(); err != nil {
			t.Fatalf("Release = %v", err)
		}
		if first = <-got; first.err != nil {
			t.Fatalf("Acquire by a local waiter = %v", first.err)
		}
		if seen == waiters {
			return first, got
		}
		_ = first.Release() // the hold was released before both had come to the queue
		if one := <-got; one.err == nil {
			_ = one.Release()
		}
	}
	t.Fatal("the waiters never queued in time")
	return acquired{}, nil
}

func locker(t *testing.T, d driver.Driver) *snib.Locker {
	t.Helper()
	l, err := snib.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
