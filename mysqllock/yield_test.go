package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/mysqllock"
)

// TestWatcherLeavesConnection: a waiter has the only connection that the server has left, to
// watch, and the holder needs it to release the lock.
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
	rowstest.YieldTest{
		Holder: open(), Waiter: open(),
		Listens:     func() bool { return number(t, admin, watching) == 1 },
		Connections: 9,
		Connect: func() (end func(), err error) {
			conn, err := others.Conn(t.Context())
			return func() { _ = conn.Close() }, err
		},
	}.Run(t)
}
