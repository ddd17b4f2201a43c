package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// moveTTL is the TTL of the tests in which a slot moves.
const moveTTL = 10 * time.Second

func TestHalfMovedSlot(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	usedCluster(t, c, o)
	grace := redislock.GraceFloor(moveTTL) // the move begins a grace period
	jobtest.HalfMovedSlot(t, c, moveTTL, open(t, o, grace), open(t, o, grace))
}

func TestReleaseMeetsMove(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	noGrace := redislock.FailoverGrace(false)
	jobtest.ReleaseMeetsMove(t, c, moveTTL, open(t, o, noGrace), open(t, o, noGrace))
}
