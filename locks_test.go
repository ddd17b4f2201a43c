package snib_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

func TestAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l := open(t, store.Open(), snib.Prefix("p/"))
		ls, err := l.AcquireAll(t.Context(), "b", "a", "b")
		wantErr(t, "AcquireAll", err, nil)
		for _, name := range []string{"a", "b"} {
			if got := ls.Lock(name).Name(); got != "p/"+name {
				t.Errorf("Lock(%q) is the hold on %q", name, got)
			}
		}
		for _, other := range []string{"c", "p/a"} {
			if lock := ls.Lock(other); lock != nil {
				t.Errorf("Lock(%q) = %v", other, lock.Name())
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
		if err := store.Open().Break(t.Context(), "p/a", st.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "AcquireAll that lost one", <-broken, snib.ErrLost)
		release(t, b)

		ls, err = l.AcquireAll(t.Context(), "a", "b")
		wantErr(t, "AcquireAll", err, nil)
		st, _ = store.Open().Status(t.Context(), "p/b")
		if err := store.Open().Break(t.Context(), "p/b", st.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		<-ls.Lost()
		<-ls.Context().Done()
		wantErr(t, "Release", ls.Release(), snib.ErrLost)
	})
}

// A loss ends AcquireAll as a loss, also in an outage: ErrLost asks for no retry.
func TestAcquireAllLosesInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d, id := newSpy(store), ""
		d.acquire = func(ctx context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if req.Name == "a" {
				id = req.ID
				return send()
			}
			if err := store.Open().Break(ctx, "a", id); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return nil, fmt.Errorf("%w: %w", errDown, context.Cause(ctx))
		}
		_, err := open(t, d).AcquireAll(t.Context(), "a", "b")
		wantErr(t, "AcquireAll", err, snib.ErrLost)
		if errors.Is(err, snib.ErrUnavailable) {
			t.Errorf("AcquireAll = %v, which matches ErrUnavailable", err)
		}
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

// MaxWait may end between two names, when neither of them is waited for.
func TestAcquireAllEndsBetweenNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &snib.Trace{WaitEnded: func(snib.WaitEndedEvent) { time.Sleep(time.Minute) }}
		l := open(t, memlock.New(), snib.MaxWait(time.Second), snib.Tracing(slow))
		_, err := l.AcquireAll(t.Context(), "a", "b")
		wantErr(t, "AcquireAll whose MaxWait is over after the first name", err, snib.ErrHeld)
	})
}

// With NoWait, AcquireAll acquires all or none, without waiting.
func TestAcquireAllNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l, other := open(t, store.Open(), snib.NoWait()), open(t, store.Open())
		b := acquire(t, other, "b")
		began := time.Now()
		_, err := l.AcquireAll(t.Context(), "c", "b", "a")
		wantErr(t, "AcquireAll", err, snib.ErrHeld)
		if !strings.Contains(err.Error(), `"b"`) || time.Since(began) != 0 {
			t.Errorf("AcquireAll = %v after %v, want at once an error that names b", err, time.Since(began))
		}
		for _, free := range []string{"a", "c"} {
			release(t, acquire(t, other.With(snib.NoWait()), free))
		}
		release(t, b)
		ls, err := l.AcquireAll(t.Context(), "c", "b", "a")
		wantErr(t, "AcquireAll of free locks", err, nil)
		wantErr(t, "Release", ls.Release(), nil)
	})
}

// If one of the holds is released before the others, the context of all of them ends.
func TestLocksReleaseOne(t *testing.T) {
	l := open(t, memlock.New())
	ls, err := l.AcquireAll(t.Context(), "a", "b")
	wantErr(t, "AcquireAll", err, nil)
	release(t, ls.Lock("a"))
	<-ls.Context().Done()
	wantErr(t, "cause", context.Cause(ls.Context()), snib.ErrReleased)
	if isClosed(ls.Lost()) {
		t.Error("Lost after Release of one")
	}
	release(t, acquire(t, l, "a"))
	wantErr(t, "Release", ls.Release(), nil)
	release(t, acquire(t, l, "b"))
}

func TestAcquireAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		var log strings.Builder
		l := open(t, d, snib.Prefix("gpu/"), snib.Logging(slog.New(slog.NewTextHandler(&log, nil))))
		first, err := l.AcquireAny(t.Context(), "0", "1")
		wantErr(t, "AcquireAny", err, nil)
		second, err := l.AcquireAny(t.Context(), "0", "1", "0")
		wantErr(t, "AcquireAny", err, nil)
		if first.Name() != "gpu/0" || second.Name() != "gpu/1" {
			t.Errorf("got %s and %s, want the first that is free", first.Name(), second.Name())
		}
		_, err = l.With(snib.NoWait()).AcquireAny(t.Context(), "0", "1")
		wantErr(t, "AcquireAny with NoWait", err, snib.ErrHeld)
		began := time.Now()
		_, err = l.With(snib.MaxWait(time.Second)).AcquireAny(t.Context(), "0", "1")
		wantErr(t, "AcquireAny with MaxWait", err, snib.ErrHeld)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited for %v, want 1s", waited)
		}

		time.AfterFunc(time.Minute, func() { release(t, second) })
		third, err := l.AcquireAny(t.Context(), "0", "1")
		wantErr(t, "AcquireAny", err, nil)
		if third.Name() != "gpu/1" {
			t.Errorf("got %s, want the one that was released", third.Name())
		}
		synctest.Wait() // for the waits that were given up
		st, err := l.Status(t.Context(), "0")
		if err != nil || len(st.Waiters) != 0 {
			t.Errorf("waiters of the other name: %+v, %v; want none", st.Waiters, err)
		}
		if log.Len() > 0 {
			t.Errorf("the log warns, although the store has answered all: %s", &log)
		}
	})
}

// Of two locks that are granted together, one is kept.
func TestAcquireAnyKeepsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l, other := open(t, store.Open()), open(t, store.Open())
		a, b := acquire(t, other, "a"), acquire(t, other, "b")
		time.AfterFunc(time.Second, func() { release(t, a); release(t, b) })
		lock, err := l.AcquireAny(t.Context(), "a", "b")
		wantErr(t, "AcquireAny", err, nil)
		synctest.Wait()
		held := 0
		for st, err := range l.List(t.Context(), "") {
			wantErr(t, "List", err, nil)
			held += len(st.Holders)
		}
		if held != 1 {
			t.Errorf("%d locks are held, want one", held)
		}
		release(t, lock)
	})
}

// AcquireAny does not say that all the names are held if the store did not answer for one of them.
func TestAcquireAnyInPartOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		l := open(t, d)
		held := acquire(t, l, "a")
		d.acquire = unavailableUntil(time.Now().Add(time.Hour), errDown)
		for _, opt := range []snib.Option{snib.NoWait(), snib.MaxWait(time.Second)} {
			_, err := l.With(opt).AcquireAny(t.Context(), "a", "b")
			wantErr(t, "AcquireAny", err, snib.ErrUnavailable)
			if errors.Is(err, snib.ErrHeld) {
				t.Errorf("AcquireAny = %v, which matches ErrHeld", err)
			}
		}
		release(t, held)
	})
}

// AcquireAny waits through an outage, and does not try all the names in it.
func TestAcquireAnyInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fault.Wrap(memlock.New(), fault.Plan{})
		l := open(t, d)
		d.Sever(fault.Fail)
		_, err := l.With(snib.NoWait()).AcquireAny(t.Context(), "a", "b")
		wantErr(t, "AcquireAny with NoWait", err, snib.ErrUnavailable)
		if n := d.Calls(fault.Acquire); n != 1 {
			t.Errorf("%d requests were sent, want one", n)
		}
		time.AfterFunc(time.Second, d.Heal)
		lock, err := l.AcquireAny(t.Context(), "a", "b")
		wantErr(t, "AcquireAny", err, nil)
		release(t, lock)
	})
}
