package jobtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Process is a driver with connections of its own.
type Process struct {
	Driver driver.Driver
	Close  func() // closes the connections, after the driver
}

// ListenersLeaveConnections has more processes wait for a lock than the server has connections,
// until processes that listen have them all. Then some must give theirs up: otherwise nobody could
// send the request that they listen for. crowded returns nil when that may be so.
func ListenersLeaveConnections(t *testing.T, connections int, open func() Process, crowded func() error) {
	holder := open()
	held := Acquire(t, holder.Driver, rowRequest("crowd", "holder"))
	var all sync.WaitGroup
	for i := range 2 * connections {
		p := open()
		w := Acquiring(t, p.Driver, rowRequest("crowd", fmt.Sprint("process ", i)))
		defer time.AfterFunc(time.Minute, w.Cancel).Stop()
		all.Go(func() {
			<-w.Done()
			if w.Err != nil {
				t.Errorf("process %d: %v", i, w.Err)
				return
			}
			livetest.Await(t, "release", func() error { return w.Lease.Release(t.Context()) })
			_ = p.Driver.Close()
			p.Close() // as the process ends
		})
	}
	livetest.Await(t, "crowd", crowded)
	livetest.Await(t, "release", func() error { return held.Release(t.Context()) })
	_ = holder.Driver.Close()
	holder.Close()
	all.Wait()
}
