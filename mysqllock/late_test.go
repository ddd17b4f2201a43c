package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
)

func TestLateOnFullServer(t *testing.T) {
	t.Parallel()
	server, full := mysqltest.Start(t), mysqltest.Start(t, "max-connections=10")
	db := dial(t, full.DSN())
	for err := error(nil); err == nil; {
		_, err = db.Conn(t.Context()) // it stays open
	}
	admin, proxy := dial(t, server.DSN()), livetest.NewProxy(t, server.Addr())
	rowstest.LateOnFullServer(t, rowstest.FullTest{
		Proxy:   proxy,
		Addr:    server.Addr(),
		Full:    full.Addr(),
		Driver:  newDriver(t, dial(t, mysqltest.DSN(proxy.Addr()))),
		Other:   newDriver(t, dial(t, server.DSN())),
		LockRow: func(name string) func() { return lockRow(t, admin, name) },
		Blocked: func() int {
			// innodb_trx would show the same for as long as it is read more often than ten times a second.
			return int(number(t, admin,
				"SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'"))
		},
	})
}
