package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
)

func TestClockBack(t *testing.T) {
	t.Parallel()
	clock := livetest.NewShim(t, "mysql")
	server := mysqltest.Start(livetest.WithEnv(t, clock.Env()...))
	rowstest.ClockBack(t, rowstest.ClockTest{
		Clock: clock,
		Open:  func(t *testing.T) rowstest.Driver { return newDriver(t, server.DSN()) },
		Hold: func(t *testing.T, req driver.Request) *livetest.Child {
			return hold(t, server.DSN(), req)
		},
	})
}
