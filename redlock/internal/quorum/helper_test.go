package quorum_test

import (
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// nodes returns the parameters of a cluster with n nodes.
func nodes(n int) quorum.Params { return quorum.Params{Nodes: n, MaxTTL: time.Second} }

// set returns the set of these nodes.
func set(nodes ...int) (s quorum.Set) {
	for _, n := range nodes {
		s |= 1 << n
	}
	return s
}

// at returns the instant that is d after the start of the test.
func at(d time.Duration) driver.Instant { return driver.Instant{}.Add(time.Hour + d) }
