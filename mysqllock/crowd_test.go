package mysqllock_test

import (
	"fmt"
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestWatchersLeaveConnections(t *testing.T) {
	t.Parallel()
	const connections = 10
	server := mysqltest.Start(t, fmt.Sprint("max-connections=", connections+1))
	admin := dial(t, server.DSN())
	jobtest.ListenersLeaveConnections(t, connections, func() jobtest.Process {
		db := dial(t, server.DSN())
		return jobtest.Process{Driver: newDriver(t, db), Close: func() { _ = db.Close() }}
	}, func() error {
		if n := status(t, admin, "CONNECTION_ERRORS_MAX_CONNECTIONS"); n < 10*connections {
			return fmt.Errorf("the server has refused %d connections", n)
		}
		return nil
	})
}
