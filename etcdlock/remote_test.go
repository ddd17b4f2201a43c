package etcdlock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestLeaseByID releases leases of another driver by their ids.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	jobtest.SessionLeaseByID(t, open(t, dial(t, server)), open(t, dial(t, server)))
}

// TestMinHoldOfWaiter releases holds that had to wait.
func TestMinHoldOfWaiter(t *testing.T) {
	t.Parallel()
	jobtest.MinHoldOfWaiter(t, open(t, dialShared(t)), open(t, dialShared(t)))
}
