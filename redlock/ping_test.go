package redlock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
)

// Two of three nodes are stopped, which are a majority.
func TestPing(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	jobtest.Ping(t, open(t, c.servers, c.opts...), c.nodes[0], c.nodes[2])
}
