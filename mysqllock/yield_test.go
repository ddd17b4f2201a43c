package mysqllock_test

import (
	"errors"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/mysqllock"
)

// TestWatcherLeavesConnection: a waiter has the only connection that the server has left, to
// watch, and the holder needs it to release the lock. Then a holder watches there that needs it
// itself, to renew.
func TestWatcherLeavesConnection(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=10") // and one more, because our account may do everything
	admin := dial(t, server.DSN())
	admin.SetMaxOpenConns(1)
	open := func() *mysqllock.Driver {
		d := newDriver(t, server.DSN())
		mysqllock.Pool(d).SetMaxIdleConns(-1) // as when the connections of a pool have ended
		return d
	}
	const watching = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'"
	others := dial(t, server.DSN())
	f := rowstest.YieldTest{
		Holder: open(), Waiter: open(),
		Listens:     func() bool { return number(t, admin, watching) == 1 },
		Connections: 9,
		Connect: func() (end func(), err error) {
			conn, err := others.Conn(t.Context())
			return func() { _ = conn.Close() }, err
		},
	}
	f.Run(t)

	req := request("renewed", "a")
	req.Tokens, req.OnWanted = 2, func() {}
	l := acquire(t, f.Waiter, req)
	livetest.Await(t, "holder that watches", func() error {
		if !f.Listens() {
			return errors.New("it does not watch")
		}
		return nil
	})
	for range f.Connections {
		livetest.Await(t, "full server", func() error { _, err := f.Connect(); return err })
	}
	livetest.Await(t, "renewal", func() error { return f.Waiter.Renew(t.Context(), []driver.Lease{l})[0].Err })
}
