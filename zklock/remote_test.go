package zklock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
)

// TestLeaseByID releases leases of another driver by their ids.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	server := shared(t)
	holder, other := newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()})
	jobtest.SessionLeaseByID(t, holder, other)
}

// TestMinHoldOfWaiter releases holds that had to wait.
func TestMinHoldOfWaiter(t *testing.T) {
	t.Parallel()
	server := shared(t)
	jobtest.MinHoldOfWaiter(t, newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()}))
}
