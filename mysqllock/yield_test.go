package mysqllock_test

import (
	"context"
	"testing"

	"github.com/sniblock/snib/driver"
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
		db := dial(t, server.DSN())
		db.SetMaxIdleConns(-1)
		return newDriver(t, db)
	}
	holder := successor{open(), open()}
	const watching = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'"
	others := dial(t, server.DSN())
	rowstest.YieldTest{
		Holder: holder, Waiter: open(),
		Listens:     func() bool { return number(t, admin, watching) == 1 },
		Connections: 8, // the waiter keeps one
		Connect: func() (end func(), err error) {
			conn, err := others.Conn(t.Context())
			return func() { _ = conn.Close() }, err
		},
	}.Run(t)
}

// A successor is a driver whose leases are released by another one, which keeps no connection yet.
type successor struct {
	*mysqllock.Driver
	other *mysqllock.Driver
}

func (s successor) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := s.Driver.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.other.Lease(req.Name, l.ID(), req.TTL), s.Driver.Close()
}
