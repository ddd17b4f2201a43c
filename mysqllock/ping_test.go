package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestPing(t *testing.T) {
	server := mysqltest.Start(t)
	jobtest.Ping(t, newDriver(t, dial(t, server.DSN())), server)
}
