package snib_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

func TestNestedIsRefused(t *testing.T) {
	l := open(t, memlock.New())
	err := l.Do(t.Context(), "a", func(ctx context.Context, _ *snib.Lock) error {
		_, err := l.Acquire(ctx, "a")
		wantErr(t, "Acquire of a lock that the context holds", err, snib.ErrNested)
		lock, err := l.Acquire(ctx, "b")
		wantErr(t, "Acquire of another", err, nil)
		_, err = l.Acquire(lock.Context(), "a")
		wantErr(t, "Acquire of the outer one", err, snib.ErrNested)
		return lock.Release()
	})
	wantErr(t, "Do", err, nil)
}

func TestReentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, memlock.New(), snib.Reentrant())
		outer := acquire(t, l, "a")
		time.Sleep(time.Second)
		validity := outer.Validity()
		inner, err := l.Acquire(outer.Context(), "a")
		wantErr(t, "Acquire again", err, nil)
		if got := inner.Validity(); got != validity {
			t.Errorf("Acquire again extended the hold, from %v to %v", validity, got)
		}
		if inner.Token() != outer.Token() {
			t.Errorf("token changed from %d to %d", outer.Token(), inner.Token())
		}
		innerCtx := inner.Context()
		release(t, outer) // out of order
		release(t, outer) // and twice: it counts once
		wantErr(t, "cause of the outer", context.Cause(outer.Context()), snib.ErrReleased)
		if innerCtx.Err() != nil {
			t.Errorf("the inner lock's context ended with the outer's release: %v", context.Cause(innerCtx))
		}
		_, err = l.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire while the inner one holds", err, snib.ErrHeld)
		time.Sleep(3 * ttl) // it is still renewed after the outer release
		if isClosed(inner.Lost()) {
			t.Error("lost after the outer's release")
		}
		release(t, inner)
		wantErr(t, "cause of the inner", context.Cause(innerCtx), snib.ErrReleased)
		release(t, acquire(t, l, "a"))
	})
}

func TestReentryChecksTheKind(t *testing.T) {
	l := open(t, memlock.New(), snib.Reentrant())
	shared := acquire(t, l.With(snib.Shared()), "a")
	_, err := l.Acquire(shared.Context(), "a")
	wantErr(t, "upgrade from shared", err, snib.ErrNested)
	release(t, shared)
	alone := acquire(t, l, "a")
	again, err := l.With(snib.Shared()).Acquire(alone.Context(), "a")
	wantErr(t, "shared inside exclusive", err, nil)
	_, err = l.With(snib.Slots(2)).Acquire(alone.Context(), "a")
	wantErr(t, "slots inside exclusive", err, snib.ErrKind)
	release(t, again)
	release(t, alone)
}

// TestCarriedHoldsMustBeOursAndAlive checks that a Locker ignores carried holds of other Lockers,
// and holds that have ended.
func TestCarriedHoldsMustBeOursAndAlive(t *testing.T) {
	a, b := open(t, memlock.New()), open(t, memlock.New())
	lock := acquire(t, a, "a")
	other, err := b.Acquire(lock.Context(), "a")
	wantErr(t, "Acquire in another store", err, nil)
	release(t, other)
	ctx := context.WithoutCancel(lock.Context())
	release(t, lock)
	again, err := a.Acquire(ctx, "a")
	wantErr(t, "Acquire with a hold that has ended", err, nil)
	release(t, again)
}
