package pglock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

func TestPing(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	jobtest.Ping(t, newDriver(t, dial(t, server.URL())), server)
}
