package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestAcquireDuringRemoval(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	jobtest.AcquireDuringRemoval(t, proxy, newDriver(t, dial(t, mysqltest.DSN(proxy.Addr()))), newDriver(t, dial(t, server.DSN())))
}
