package mysqllock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestWatchersLeaveConnections has more processes wait for a lock than the server has connections,
// until processes that watch have them all. Then some must give theirs up: otherwise nobody could
// send the request that they watch for.
func TestWatchersLeaveConnections(t *testing.T) {
	t.Parallel()
	const connections = 10
	server := mysqltest.Start(t, fmt.Sprint("max-connections=", connections))
	admin := dial(t, server.DSN())
	held := acquire(t, newDriver(t, admin), request("crowd", "holder"))
	var all sync.WaitGroup
	for i := range 2 * connections {
		db := dial(t, server.DSN())
		d := newDriver(t, db)
		w := jobtest.Acquiring(t, d, request("crowd", fmt.Sprint("process ", i)))
		defer time.AfterFunc(time.Minute, w.Cancel).Stop()
		all.Go(func() {
			<-w.Done()
			if w.Err != nil {
				t.Errorf("process %d: %v", i, w.Err)
				return
			}
			livetest.Await(t, "release", func() error { return w.Lease.Release(t.Context()) })
			_ = d.Close()
			_ = db.Close() // as the process ends
		})
	}
	livetest.Await(t, "crowd", func() error {
		if n := status(t, admin, "CONNECTION_ERRORS_MAX_CONNECTIONS"); n < 10*connections {
			return fmt.Errorf("the server has refused %d connections", n)
		}
		return nil
	})
	livetest.Await(t, "release", func() error { return held.Release(t.Context()) })
	_ = admin.Close()
	all.Wait()
}
