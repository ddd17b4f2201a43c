package quorum_test

import (
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// nodes returns parameters for so many nodes.
func nodes(n int) quorum.Params { return quorum.Params{Nodes: n, MaxTTL: time.Second} }

// set returns the set of some nodes.
func set(nodes ...int) (s quorum.Set) {
	for _, n := range nodes {
		s |= 1 << n
	}
	return s
}

// at is a moment, counted from the one at which everything begins.
func at(d time.Duration) driver.Instant { return driver.Instant{}.Add(time.Hour + d) }
