package zklock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

func TestPing(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	jobtest.Ping(t, newDriver(t, []string{server.Addr()}), server)
}
