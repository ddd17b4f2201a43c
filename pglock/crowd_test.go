package pglock_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// The pools keep no connection between two requests, as a pool whose connections have ended does.
func TestListenersLeaveConnections(t *testing.T) {
	const connections = 10
	server := pgtest.Start(t, fmt.Sprint("max_connections=", connections+1), "superuser_reserved_connections=0", "max_wal_senders=0")
	admin := dial(t, server.URL())
	query[int64](t, admin, "SELECT 1") // so that the pool has a connection before there is none left
	jobtest.ListenersLeaveConnections(t, connections, func() jobtest.Process {
		pool := dialWith(t, server.URL(), func(c *pgxpool.Config) {
			c.AfterRelease = func(*pgx.Conn) bool { return false }
		})
		return jobtest.Process{Driver: newDriver(t, pool), Close: pool.Close}
	}, func() error {
		n := query[int64](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
		if n < connections {
			return fmt.Errorf("%d processes listen", n)
		}
		return nil
	})
}
