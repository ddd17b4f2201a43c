package snib_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
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
		inner, err := l.Acquire(outer.Context(), "a")
		wantErr(t, "Acquire again", err, nil)
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

// A Locker ignores carried holds of other Lockers, and holds that have ended.
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

func TestDo(t *testing.T) {
	errBody := errors.New("body")
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l := open(t, store.Open())
		wantErr(t, "Do", l.Do(t.Context(), "a", func(context.Context, *snib.Lock) error { return errBody }), errBody)

		func() {
			defer func() { recover() }()
			_ = l.Do(t.Context(), "a", func(context.Context, *snib.Lock) error { panic("body") })
		}()
		release(t, acquire(t, l, "a")) // released by Do despite the panic

		ctx, cancel := context.WithCancel(t.Context())
		err := l.Do(ctx, "a", func(ctx context.Context, lock *snib.Lock) error {
			cancel()
			<-ctx.Done()
			time.Sleep(2 * ttl) // the lock is kept while the function winds down
			if isClosed(lock.Lost()) {
				t.Error("the hold was lost while a cancelled body wound down")
			}
			return ctx.Err()
		})
		wantErr(t, "Do with a cancelled context", err, context.Canceled)

		var inner error
		err = l.Do(t.Context(), "a", func(ctx context.Context, lock *snib.Lock) error {
			if err := store.Open().Break(ctx, "a", lock.Owner(), lock.Token()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			inner = context.Cause(ctx)
			return nil
		})
		wantErr(t, "cause of the body's context", inner, snib.ErrLost)
		wantErr(t, "Do whose body did not notice", err, snib.ErrLost)
	})
}

func TestAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l := open(t, store.Open(), snib.Prefix("p/"))
		ls, err := l.AcquireAll(t.Context(), "b", "a", "b")
		wantErr(t, "AcquireAll", err, nil)
		first, _ := ls.Token("a")
		second, _ := ls.Token("b")
		if first == 0 || second <= first {
			t.Errorf("tokens: a %d, b %d", first, second)
		}
		for _, other := range []string{"c", "p/a"} {
			if token, ok := ls.Token(other); ok || token != 0 {
				t.Errorf("Token(%q) = %d, %v", other, token, ok)
			}
		}
		_, err = l.Acquire(ls.Context(), "a")
		wantErr(t, "Acquire inside", err, snib.ErrNested)
		wantErr(t, "Release", ls.Release(), nil)
		wantErr(t, "cause", context.Cause(ls.Context()), snib.ErrReleased)
		if isClosed(ls.Lost()) {
			t.Error("Lost after Release")
		}

		// AcquireAll acquires all or none.
		b := acquire(t, l, "b")
		_, err = l.With(snib.NoWait()).AcquireAll(t.Context(), "a", "b")
		wantErr(t, "AcquireAll", err, snib.ErrHeld)
		release(t, acquire(t, l, "a"))

		// MaxWait bounds the wait for all of the locks together.
		began := time.Now()
		time.AfterFunc(6*time.Second, func() { release(t, b) })
		c := acquire(t, l, "c")
		_, err = l.With(snib.MaxWait(10*time.Second)).AcquireAll(t.Context(), "a", "b", "c")
		wantErr(t, "AcquireAll", err, snib.ErrHeld)
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("AcquireAll with a MaxWait of 10s took %v", got)
		}
		release(t, c)
		b = acquire(t, l, "b")

		// The loss of a hold ends the wait for the others.
		broken := make(chan error)
		go func() {
			_, err := l.AcquireAll(t.Context(), "a", "b")
			broken <- err
		}()
		synctest.Wait()
		st, _ := store.Open().Status(t.Context(), "p/a")
		if err := store.Open().Break(t.Context(), "p/a", st.Holders[0].Owner, st.Holders[0].Token); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "AcquireAll that lost one", <-broken, snib.ErrLost)
		release(t, b)

		ls, err = l.AcquireAll(t.Context(), "a", "b")
		wantErr(t, "AcquireAll", err, nil)
		st, _ = store.Open().Status(t.Context(), "p/b")
		if err := store.Open().Break(t.Context(), "p/b", st.Holders[0].Owner, st.Holders[0].Token); err != nil {
			t.Fatal(err)
		}
		<-ls.Lost()
		<-ls.Context().Done()
		wantErr(t, "Release", ls.Release(), snib.ErrLost)
	})
}

// Names are acquired in sorted order, whatever the order of the arguments.
func TestAcquireAllOrder(t *testing.T) {
	d := newSpy(new(memlock.Store))
	var requested []string
	d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		requested = append(requested, req.Name)
		return send()
	}
	ls, err := open(t, d).AcquireAll(t.Context(), "c", "a", "b", "a")
	wantErr(t, "AcquireAll", err, nil)
	wantErr(t, "Release", ls.Release(), nil)
	if got, want := strings.Join(requested, " "), "a b c"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}
