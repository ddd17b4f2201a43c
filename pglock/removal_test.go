package pglock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

func TestAcquireDuringRemoval(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	jobtest.AcquireDuringRemoval(t, proxy, newDriver(t, dial(t, pgtest.URL(proxy.Addr()))), newDriver(t, dial(t, server.URL())))
}
