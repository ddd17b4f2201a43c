package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/mysqllock"
)

func TestEmptied(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := dial(t, server.DSN())
	open := func(t *testing.T, table string) driver.Driver {
		return newDriver(t, dial(t, server.DSN()), mysqllock.Table(table))
	}
	rowstest.Emptied(t, open, func(sql string) { must(t, admin, sql) })
}
