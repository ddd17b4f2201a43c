package snib_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
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

// What a process remembers does not grow with the number of names that it has locked.
func TestManyNames(t *testing.T) {
	const most = 3 << 20                                // bytes; watermarks, which are bounded, take half of that
	names, err := strconv.Atoi(os.Getenv("SNIB_LOCKS")) // make million
	if err != nil {
		names = 100_000
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	l := open(t, memlock.New())
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range names {
		release(t, acquire(t, l, "orders/"+strconv.Itoa(i)))
	}
	grown, more := heap()-before, runtime.NumGoroutine()-goroutines
	t.Logf("after %d names: %d KiB and %d goroutines more", names, grown>>10, more)
	if grown > most || more > 1 {
		t.Errorf("want %d KiB and 1 goroutine more at most", most>>10)
	}
}
