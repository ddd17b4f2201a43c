package pglock_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/pglock"
)

// TestListenerLeavesConnection: a waiter has the only connection that the server has left, to
// listen, and the holder needs it to release the lock. Then a holder listens there that needs it
// itself, to renew.
func TestListenerLeavesConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "max_connections=3", "superuser_reserved_connections=0", "max_wal_senders=0")
	admin := dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	must(t, admin, "SELECT") // connects while there is room
	open := func(opts ...pglock.Option) *pglock.Driver {
		pool := dialWith(t, server.URL(), func(c *pgxpool.Config) {
			c.AfterRelease = func(*pgx.Conn) bool { return false } // as when the connections of a pool have ended
		})
		return newDriver(t, pool, opts...)
	}
	nowhere := admin.Config().ConnConfig
	nowhere.Port = uint16(livetest.FreePort(t))
	f := rowstest.YieldTest{
		Holder: open(pglock.Listen(nowhere)), Waiter: open(),
		Listens:     func() bool { return listens(t, admin) },
		Connections: 1,
		Connect: func() (end func(), err error) {
			conn, err := pgx.ConnectConfig(t.Context(), admin.Config().ConnConfig)
			return func() { _ = conn.Close(t.Context()) }, err
		},
	}
	f.Run(t)

	req := request("renewed", "a")
	req.OnLost = func(err error) { t.Errorf("OnLost(%v)", err) }
	l := acquire(t, f.Waiter, req)
	awaitListener(t, admin)
	livetest.Await(t, "full server", func() error {
		end, err := f.Connect()
		if err == nil {
			t.Cleanup(end)
		}
		return err
	})
	livetest.Await(t, "renewal", func() error { return f.Waiter.Renew(t.Context(), []driver.Lease{l})[0].Err })
}
