package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestWithdraw(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	jobtest.Withdraw(t, func() jobtest.Withdrawer { return newDriver(t, dial(t, server.DSN())) })
}
