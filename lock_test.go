package snib_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// A context that is first requested after Release is done.
func TestContextAfterRelease(t *testing.T) {
	lock := acquire(t, open(t, memlock.New()), "a")
	release(t, lock)
	wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrReleased)
}

// The context of Acquire bounds the wait, not the hold.
func TestHoldOutlivesAcquireContext(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	store := new(memlock.Store)
	lock, err := open(t, store.Open()).Acquire(ctx, "a")
	wantErr(t, "Acquire", err, nil)
	cancel()
	if err := lock.Context().Err(); err != nil {
		t.Errorf("the hold ended with the context of its Acquire: %v", err)
	}
	if got := lock.Context().Value(key{}); got != "kept" {
		t.Errorf("value of Acquire's context = %v", got)
	}
	release(t, lock) // after its context was cancelled: the most common bug
	if _, err := open(t, store.Open()).TryAcquire(t.Context(), "a"); err != nil {
		t.Errorf("the release under a cancelled context stranded the lock: %v", err)
	}
}

func TestWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		a, b := open(t, store.Open()), open(t, store.Open())
		lock := acquire(t, a, "a")
		if isClosed(lock.Wanted()) {
			t.Error("wanted by nobody")
		}
		go func() {
			if l, err := b.Acquire(t.Context(), "a"); err == nil {
				_ = l.Release()
			}
		}()
		<-lock.Wanted()
		release(t, lock)
	})
}

func TestLeakIsReportedAndReleased(t *testing.T) {
	leaks := make(chan snib.LeakedEvent, 1)
	trace := &snib.Trace{Leaked: func(e snib.LeakedEvent) { leaks <- e }}
	l := open(t, memlock.New(), snib.TrackLeaks(), snib.Tracing(trace))
	forget := func() {
		lock := acquire(t, l, "a")
		_ = lock.Context() // the hold's context must not keep the Lock alive
	}
	forget()
	kept := acquire(t, l, "kept")
	var leak snib.LeakedEvent
	for leak.Name == "" {
		runtime.GC()
		select {
		case leak = <-leaks:
		case <-time.After(10 * time.Millisecond): // the time of a collection is not known
		}
	}
	if leak.Name != "a" || !strings.Contains(string(leak.Stack), "TestLeakIsReportedAndReleased") {
		t.Errorf("leak of %q at\n%s", leak.Name, leak.Stack)
	}
	release(t, acquire(t, l, "a")) // waits for the release of the leaked lock
	release(t, kept)
}

func TestLeakedLocksAreReported(t *testing.T) {
	leaks := make(chan snib.LeakedEvent, 2)
	trace := &snib.Trace{Leaked: func(e snib.LeakedEvent) { leaks <- e }}
	l := open(t, memlock.New(), snib.TrackLeaks(), snib.Tracing(trace))
	func() {
		_, err := l.AcquireAll(t.Context(), "a", "b")
		wantErr(t, "AcquireAll", err, nil)
	}()
	for found := 0; found < 2; {
		runtime.GC()
		select {
		case <-leaks:
			found++
		case <-time.After(10 * time.Millisecond): // the time of a collection is not known
		}
	}
}
