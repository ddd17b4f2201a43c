package mysqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestCancelledAcquisitions has many callers give up while the server executes their requests.
// None of them may leave a lock behind that nobody has.
func TestCancelledAcquisitions(t *testing.T) {
	t.Parallel()
	const callers, rounds = 32, 40
	server := mysqltest.Start(t)
	d, other := newDriver(t, dial(t, server.DSN())), newDriver(t, dial(t, server.DSN()))
	name := func(caller int) string { return fmt.Sprint("cancelled ", caller) }
	for i := range callers {
		release(t, acquire(t, other, request(name(i), "first")))
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for round := range rounds {
				// Some give up before the request is sent, and some after the grant.
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				l, err := d.Acquire(ctx, request(name(i), fmt.Sprint(i, " ", round)))
				cancel()
				if err == nil {
					err = l.Release(testContext(t))
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("caller %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	for i := range callers {
		livetest.Await(t, "free lock", func() error {
			l, err := tryAcquire(t, other, request(name(i), "second"))
			if errors.Is(err, driver.ErrHeld) {
				return fmt.Errorf("nobody has %q, and it is taken", name(i))
			}
			if err == nil {
				err = l.Release(testContext(t))
			}
			return err
		})
	}
}
