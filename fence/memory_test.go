package fence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/memlock"
)

var _ fence.Hold = (*snib.Lock)(nil)

func TestMemory(t *testing.T) {
	ctx, g := t.Context(), new(fence.Memory)
	old, err := g.Open(ctx, hold{"a", 7, "old"})
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	count := func(context.Context) error { ran++; return nil }
	for range 2 {
		if err = old.Do(ctx, count); err != nil {
			t.Errorf("Do of the last hold: %v", err)
		}
	}
	if _, err = g.Open(ctx, hold{"a", 7, "another"}); !errors.Is(err, fence.ErrConflict) {
		t.Errorf("Open of a hold with the same token = %v, want ErrConflict", err)
	}
	if _, err = g.Open(ctx, hold{"b", 1, "elsewhere"}); err != nil {
		t.Errorf("Open under another lock: %v", err)
	}
	later, err := g.Open(ctx, hold{"a", 8, "later"})
	if err != nil {
		t.Fatal(err)
	}
	err = old.Do(ctx, count)
	var refused *fence.RefusedError
	if !errors.Is(err, fence.ErrStale) || !errors.As(err, &refused) || refused.Last != later.Mark() {
		t.Errorf("Do of an old hold = %v, want ErrStale with the last mark", err)
	}
	if err = later.Do(ctx, count); err != nil || ran != 3 {
		t.Errorf("Do of the later hold = %v, and %d ran, want 3", err, ran)
	}
	wrong := errors.New("wrong")
	if err = later.Do(ctx, func(context.Context) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("Do = %v, want the function's error", err)
	}
	if _, err = g.Open(ctx, hold{"a", 0, "none"}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Open without a token = %v, want ErrInvalid", err)
	}
	if err = g.Do(ctx, fence.Mark{Lock: "a", Token: 9, Owner: "plain text"}, count); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Do with an owner that is no digest = %v, want ErrInvalid", err)
	}
}

// While an operation runs, a later hold is not let in; its wait ends with its context.
func TestMemoryExcludes(t *testing.T) {
	g := new(fence.Memory)
	old, err := g.Open(t.Context(), hold{"a", 7, "old"})
	if err != nil {
		t.Fatal(err)
	}
	err = old.Do(t.Context(), func(context.Context) error {
		mustWait(t, func(ctx context.Context) error {
			_, err := g.Open(ctx, hold{"a", 8, "later"})
			return err
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err = old.Do(t.Context(), nil); err != nil {
		t.Errorf("Do after a later hold gave up: %v", err)
	}
}

// mustWait checks that open waits until its context is cancelled.
func mustWait(t *testing.T, open func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	gaveUp := errors.New("gave up")
	result := make(chan error)
	go func() { result <- open(ctx) }()
	select {
	case err := <-result:
		t.Errorf("Open during an operation of an older hold = %v, want it to wait", err)
		return
	case <-time.After(50 * time.Millisecond): // it waits
	}
	cancel(gaveUp)
	if err := <-result; !errors.Is(err, gaveUp) {
		t.Errorf("Open during an operation of an older hold = %v, want the context's cause", err)
	}
}

// A real hold that was broken is refused, although nobody told it.
func TestPausedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		guard := new(fence.Memory)
		open := func() *snib.Locker {
			l, err := snib.New(store.Open())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return l
		}
		paused, err := open().Acquire(t.Context(), "account/42")
		if err != nil {
			t.Fatal(err)
		}
		h, err := guard.Open(t.Context(), paused)
		if err != nil {
			t.Fatal(err)
		}
		if err = store.Open().Break(t.Context(), "account/42", paused.ID()); err != nil {
			t.Fatal(err)
		}
		next, err := open().Acquire(t.Context(), "account/42")
		if err != nil {
			t.Fatal(err)
		}
		defer next.Release()
		if _, err = guard.Open(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if err = h.Do(t.Context(), nil); !errors.Is(err, fence.ErrStale) {
			t.Errorf("Do of the hold that was broken = %v, want ErrStale", err)
		}
	})
}
