package redislock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

func TestPing(t *testing.T) {
	node := used(t, redistest.Single(t, redistest.Password(password)))
	jobtest.Ping(t, open(t, at(node.Addr())), node)
}
