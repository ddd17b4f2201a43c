package snib

import (
	"testing"
	"testing/synctest"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// openHolding returns a Locker, and a Lock that it holds on "a".
func openHolding(t *testing.T, opts ...Option) (*Locker, *Lock) {
	t.Helper()
	l, err := New(memlock.New(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	lock, err := l.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return l, lock
}

// A waiter whose lease the store ends between the hand-over and its acceptance goes on waiting: it
// has lost nothing that it had.
func TestWaitOutlivesHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, first := openHolding(t)
		acquired := make(chan error, 1)
		go func() {
			lock, err := l.Acquire(t.Context(), "a")
			if err == nil {
				err = lock.Release()
			}
			acquired <- err
		}()
		synctest.Wait()

		// Hand the lease over as Release does, and break it before the waiter goes on.
		c, le := l.core, first.hold.lease
		c.mu.Lock()
		le.endToken++ // the lease has no token for a second hold
		next := c.handOverLocked(le, driver.Now(), true)
		c.mu.Unlock()
		if next == nil {
			t.Fatal("the lease was not handed over")
		}
		if err := l.Break(t.Context(), "a", le.id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the keeper has been told
		close(next.prevDone)
		if err := <-acquired; err != nil {
			t.Errorf("Acquire of the waiter = %v", err)
		}
	})
}
