package jobtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A BatchTest has what [BatchTest.Run] needs.
type BatchTest struct {
	Driver  driver.Driver
	LockRow func(name string) (unlock func()) // by a transaction
	Blocked func() int                        // how many statements wait for a row
}

// Run keeps the rows of some locks locked while requests for these and for other locks go to the
// store together. All others are served meanwhile, and those for the locked rows afterwards.
func (b BatchTest) Run(t *testing.T) {
	const others = 10
	names := func(kind string) (all []string) { // the last one is not sent alone
		all = []string{kind + " locked 1", kind + " locked 2", kind + " locked 3"}
		for i := range others {
			all = append(all, fmt.Sprint(kind, " ", i))
		}
		return all
	}
	taken := map[string]driver.Lease{}
	for i, name := range names("take") {
		if i < 3+others/2 { // the rest have no row
			Release(t, Acquire(t, b.Driver, rowRequest(name, "first")))
		}
	}
	take := func(name string) error {
		l, err := b.Driver.Acquire(t.Context(), rowRequest(name, "second"))
		if err == nil && l.Grant().Token == 0 {
			err = errors.New("a lease without a token")
		}
		return err
	}
	b.besideLocked(t, names("take"), take)
	for _, name := range names("free") {
		taken[name] = Acquire(t, b.Driver, rowRequest(name, "first"))
	}
	b.besideLocked(t, names("free"), func(name string) error { return taken[name].Release(t.Context()) })
	for _, name := range names("free") {
		if _, err := tryAcquire(t, b.Driver, rowRequest(name, "second")); err != nil {
			t.Errorf("Acquire of %q after its release = %v", name, err)
		}
	}
}

// Gather makes the requests to the driver wait for one another, so that they go to the store in
// batches: two requests wait for their rows. It returns a function that ends this.
func (b BatchTest) Gather(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var unlocks []func()
	var waiting sync.WaitGroup
	for _, name := range []string{"locked 1", "locked 2"} {
		Release(t, Acquire(t, b.Driver, rowRequest(name, "a")))
		unlocks = append(unlocks, b.LockRow(name))
		waiting.Go(func() {
			if l, err := b.Driver.Acquire(ctx, rowRequest(name, "b")); err == nil {
				_ = l.Release(context.Background()) // the test may have killed the server
			}
		})
	}
	b.awaitBlocked(t)
	return func() {
		for _, unlock := range unlocks {
			unlock()
		}
		cancel()
		waiting.Wait()
	}
}

// awaitBlocked waits until two statements wait for rows.
func (b BatchTest) awaitBlocked(t *testing.T) {
	t.Helper()
	livetest.Await(t, "two statements that wait for rows", func() error {
		if n := b.Blocked(); n != 2 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
}

// besideLocked calls fn for each name in a goroutine of its own, while the rows of the first three
// are locked.
func (b BatchTest) besideLocked(t *testing.T, names []string, fn func(name string) error) {
	t.Helper()
	done := make(map[string]chan error)
	start := func(some ...string) {
		for _, name := range some {
			done[name] = make(chan error, 1)
			go func(result chan<- error) {
				err := fn(name)
				for errors.Is(err, driver.ErrUnavailable) && slices.Contains(names[:3], name) {
					err = fn(name)
				}
				result <- err
			}(done[name])
		}
	}
	await := func(some ...string) {
		t.Helper()
		for _, name := range some {
			select {
			case err := <-done[name]:
				if err != nil {
					t.Errorf("the request for %q = %v", name, err)
				}
			case <-time.After(livetest.Patience):
				t.Fatalf("the request for %q had no answer within %v", name, livetest.Patience)
			}
		}
	}
	var unlocks []func()
	for _, name := range names[:3] {
		unlocks = append(unlocks, b.LockRow(name))
	}
	start(names[:2]...)
	b.awaitBlocked(t)
	start(names[2:]...)
	await(names[3:]...)
	for _, name := range names[:3] {
		select {
		case err := <-done[name]:
			t.Errorf("the request for %q, whose row is locked, = %v", name, err)
		default:
		}
	}
	for _, unlock := range unlocks {
		unlock()
	}
	await(names[:3]...)
}
