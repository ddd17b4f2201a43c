package pglock_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/rowstest"
)

func TestLateOnFullServer(t *testing.T) {
	t.Parallel()
	server, full := pgtest.Start(t), pgtest.Start(t, "max_connections=5")
	openConns(t, dialWith(t, full.URL(), func(c *pgxpool.Config) { c.MaxConns = 5 }), 5)
	admin, proxy := dial(t, server.URL()), livetest.NewProxy(t, server.Addr())
	rowstest.LateOnFullServer(t, rowstest.FullTest{
		Proxy:   proxy,
		Addr:    server.Addr(),
		Full:    full.Addr(),
		Driver:  newDriver(t, dial(t, pgtest.URL(proxy.Addr()))),
		Other:   newDriver(t, dial(t, server.URL())),
		LockRow: func(name string) func() { return lockRow(t, admin, "snib_locks", name) },
		Blocked: func() int { return blocked(t, admin) },
	})
}
