package mysqllock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestBreakKept breaks locks that MinHold keeps taken after their release.
func TestBreakKept(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	d, other := newDriver(t, dial(t, server.DSN())), newDriver(t, dial(t, server.DSN()))
	for kind, change := range map[string]func(*driver.Request){
		"exclusive": func(*driver.Request) {},
		"shared":    func(r *driver.Request) { r.Shared = true },
		"slots":     func(r *driver.Request) { r.Slots = 1 },
	} {
		t.Run(kind, func(t *testing.T) {
			req := request("kept "+kind, "a")
			req.MinHold = time.Hour
			change(&req)
			l := acquire(t, d, req)
			release(t, l)
			next := req
			next.ID, next.Shared, next.MinHold = "b", false, 0
			mustBeHeld(t, other, next)
			if err := other.Break(testContext(t), req.Name, "b"); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Break of another id = %v, want ErrLost", err)
			}
			if err := other.Break(testContext(t), req.Name, "a"); err != nil {
				t.Fatalf("Break = %v", err)
			}
			got, err := tryAcquire(t, other, next)
			if err != nil {
				t.Fatalf("Acquire after Break = %v", err)
			}
			release(t, got)
		})
	}
}
