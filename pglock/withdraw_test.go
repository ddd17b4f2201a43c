package pglock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

func TestWithdraw(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	jobtest.Withdraw(t, func() jobtest.Withdrawer { return newDriver(t, dial(t, server.URL())) })
}
