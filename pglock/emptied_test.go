package pglock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/pglock"
)

func TestEmptied(t *testing.T) {
	server := database(t)
	admin := dial(t, server.URL())
	open := func(t *testing.T, table string) driver.Driver {
		return newDriver(t, dial(t, server.URL()), pglock.Table(table))
	}
	rowstest.Emptied(t, open, func(sql string) { must(t, admin, sql) })
}
