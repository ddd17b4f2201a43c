package snib_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := snib.New(memlock.New())
		wantErr(t, "New", err, nil)
		lock := acquire(t, l, "a")
		errs := make(chan error, 2)
		for range 2 { // one waits in the store, one in the process
			go func() {
				_, err := l.Acquire(context.Background(), "a")
				errs <- err
			}()
		}
		synctest.Wait()
		wantErr(t, "Close", l.Close(), nil)
		wantErr(t, "a waiting Acquire", <-errs, snib.ErrClosed)
		wantErr(t, "a waiting Acquire", <-errs, snib.ErrClosed)
		wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrLost)
		wantErr(t, "cause", context.Cause(lock.Context()), snib.ErrClosed)
		wantErr(t, "Release", lock.Release(), snib.ErrLost)
		_, err = l.Acquire(t.Context(), "b")
		wantErr(t, "Acquire after Close", err, snib.ErrClosed)
		wantErr(t, "Close again", l.Close(), nil)
	})
}
