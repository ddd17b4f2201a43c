package etcdlock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
)

// TestLeaseByID releases leases of another driver by their ids.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	jobtest.SessionLeaseByID(t, open(t, dialShared(t)), open(t, dialShared(t)))
}
