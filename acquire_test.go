package snib_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

func TestAcquireAndRelease(t *testing.T) {
	l := open(t, memlock.New(), snib.Prefix("app/"))
	lock := acquire(t, l, "a")
	if got, want := lock.Name(), "app/a"; got != want {
		t.Errorf("Name = %q, want %q", got, want)
	}
	ctx := lock.Context()
	if ctx.Err() != nil || lock.Validity() <= 0 {
		t.Errorf("a new hold: context %v, validity %v", ctx.Err(), lock.Validity())
	}
	_, err := l.TryAcquire(t.Context(), "a")
	wantErr(t, "TryAcquire of a held lock", err, snib.ErrHeld)
	release(t, lock)
	wantErr(t, "cause", context.Cause(ctx), snib.ErrReleased)
	if isClosed(lock.Lost()) || lock.Validity() != 0 {
		t.Errorf("a released hold: lost %v, validity %v", isClosed(lock.Lost()), lock.Validity())
	}
	release(t, lock) // again
	next := acquire(t, l, "a")
	if next.Token() <= lock.Token() {
		t.Errorf("token %d after %d", next.Token(), lock.Token())
	}
	release(t, next)
}

func TestWaitErrors(t *testing.T) {
	errEnough := errors.New("enough")
	tests := []struct {
		name string
		opts []snib.Option
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		{"NoWait", []snib.Option{snib.NoWait()}, nil, snib.ErrHeld},
		{"MaxWait", []snib.Option{snib.MaxWait(time.Second)}, nil, snib.ErrHeld},
		{"Deadline", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded},
		{"Cause", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, errEnough)
		}, errEnough},
		{"DoneBefore", nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(errEnough)
			return ctx, func() {}
		}, errEnough},
	}
	for _, tt := range tests {
		for _, where := range []string{"InProcess", "InStore"} {
			bubble(t, tt.name+where, func(t *testing.T) {
				store := new(memlock.Store)
				l := open(t, store.Open(), tt.opts...)
				holder := l
				if where == "InStore" {
					holder = open(t, store.Open())
				}
				lock := acquire(t, holder, "a")
				ctx := t.Context()
				if tt.ctx != nil {
					c, cancel := tt.ctx(ctx)
					defer cancel()
					ctx = c
				}
				_, err := l.Acquire(ctx, "a")
				wantErr(t, "Acquire of a held lock", err, tt.want)
				var e *snib.Error
				if !errors.As(err, &e) || e.Op != "acquire" || e.Name != "a" || e.Backend != "memory" {
					t.Errorf("error %#v does not say operation, name and backend", err)
				}
				release(t, lock)
				release(t, acquire(t, l, "a")) // nothing was left behind
			})
		}
	}
}

func TestSharedAndSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, memlock.New())
		read, write, pool := l.With(snib.Shared()), l.With(snib.NoWait()), l.With(snib.Slots(2), snib.NoWait())
		r1, r2 := acquire(t, read, "rw"), acquire(t, read, "rw")
		_, err := write.Acquire(t.Context(), "rw")
		wantErr(t, "writer beside readers", err, snib.ErrHeld)
		release(t, r1)
		release(t, r2)
		w := acquire(t, write, "rw")
		_, err = read.TryAcquire(t.Context(), "rw")
		wantErr(t, "reader beside a writer", err, snib.ErrHeld)
		_, err = pool.Acquire(t.Context(), "rw")
		wantErr(t, "semaphore of a locked name", err, snib.ErrHeld)
		release(t, w)

		var wg sync.WaitGroup
		for range 2 { // concurrently: neither may be refused
			wg.Go(func() { acquire(t, pool, "pool") })
		}
		wg.Wait()
		_, err = pool.Acquire(t.Context(), "pool")
		wantErr(t, "third of two", err, snib.ErrHeld)
		_, err = l.With(snib.Slots(3)).TryAcquire(t.Context(), "pool")
		wantErr(t, "another size", err, snib.ErrHeld)
	})
}
