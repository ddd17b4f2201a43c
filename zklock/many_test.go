package zklock_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestManyHolds checks that a renewal of all holds finds out which of them was broken: also right
// after the grant, when its node is not watched yet.
func TestManyHolds(t *testing.T) {
	t.Parallel()
	const watched, unwatched = 300, 50
	server := zktest.Single(t)
	d, operator := newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()})
	acquire(t, d, request("first", "a"))
	var leases []driver.Lease
	var losses []<-chan error
	add := func() (i int) {
		l, lost := livetest.AcquireTold(t, d, request(fmt.Sprint(len(leases)), "a"))
		leases, losses = append(leases, l), append(losses, lost)
		return len(leases) - 1
	}
	kill := func(i int) {
		t.Helper()
		if err := operator.Break(t.Context(), fmt.Sprint(i), leases[i].ID()); err != nil {
			t.Fatal(err)
		}
	}
	checkOnlyLost := func(lost int) {
		t.Helper()
		livetest.RenewAll(t, d)
		livetest.CheckOnlyLost(t, losses, lost)
	}
	for range watched {
		add()
	}
	livetest.Await(t, "watches of all nodes", func() error {
		if _, nodes := server.Watches(t); nodes < watched {
			return fmt.Errorf("the server has %d", nodes)
		}
		return nil
	})
	for i := range unwatched {
		kill(i)
		checkOnlyLost(i)
		fresh := add()
		kill(fresh)
		checkOnlyLost(fresh)
	}
	// Holders of leases that are released while all are renewed are told nothing.
	var releasing sync.WaitGroup
	for _, l := range leases[unwatched:watched] {
		releasing.Go(func() { release(t, l) })
	}
	for range 10 {
		checkOnlyLost(-1)
	}
	releasing.Wait()
	checkOnlyLost(-1)
}
