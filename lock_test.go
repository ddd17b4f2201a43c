package snib_test

import (
	"context"
	"testing"
	"testing/synctest"

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
