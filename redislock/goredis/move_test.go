package goredis_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// moveTTL is the TTL of the tests in which a slot moves.
const moveTTL = 10 * time.Second

func TestHalfMovedSlot(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t, redistest.Password(password))
	redistest.HalfMovedSlot(t, c, moveTTL, openInCluster(t, c, nil), openInCluster(t, c, nil))
}

func TestReleaseMeetsMove(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t, redistest.Password(password))
	noGrace := open(t, dialCluster(t, c, nil), redislock.FailoverGrace(false))
	redistest.ReleaseMeetsMove(t, c, moveTTL, noGrace, openInCluster(t, c, nil))
}
