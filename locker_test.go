package snib_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
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

// Close also ends an acquisition that pauses between two retries.
func TestCloseEndsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fault.Wrap(memlock.New(), fault.Plan{})
		l := open(t, d)
		d.Sever(fault.Fail)
		failed := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), "a")
			failed <- err
		}()
		time.Sleep(10 * time.Second) // pauses have become long
		synctest.Wait()
		closed := time.Now()
		wantErr(t, "Close", l.Close(), nil)
		err := <-failed
		wantErr(t, "Acquire", err, snib.ErrClosed)
		if took := time.Since(closed); took > 0 || errors.Is(err, snib.ErrUnavailable) {
			t.Errorf("Acquire = %v, %v after Close, want ErrClosed alone at once", err, took)
		}
	})
}

// A closedSpy is a spy that releases nothing once it is closed.
type closedSpy struct {
	*spy
	closed chan struct{}
}

func (d *closedSpy) Close() error {
	close(d.closed)
	return d.Driver.Close()
}

// A lease that the driver grants while the Locker is being closed is released.
func TestCloseMeetsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := &closedSpy{newSpy(store), make(chan struct{})}
		d.acquire = func(ctx context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			lease, err := send()
			select {
			case <-ctx.Done():
			case <-d.closed:
			}
			return lease, err
		}
		d.release = func(_ context.Context, send func() error) error {
			if isClosed(d.closed) {
				return driver.ErrClosed
			}
			return send()
		}
		l, err := snib.New(d, snib.Detached())
		wantErr(t, "New", err, nil)
		go func() {
			synctest.Wait()
			_ = l.Close()
		}()
		_, err = l.Acquire(t.Context(), "a")
		wantErr(t, "Acquire", err, snib.ErrClosed)
		release(t, acquire(t, open(t, store.Open(), snib.NoWait()), "a"))
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
