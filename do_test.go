package snib_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

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
			if err := store.Open().Break(ctx, "a", lock.ID()); err != nil {
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
