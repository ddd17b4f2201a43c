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

func TestAdopt(t *testing.T) {
	t.Parallel()
	pool := dial(t, database(t).URL())
	jobtest.Adopt(t, newDriver(t, pool), newDriver(t, pool))
}
