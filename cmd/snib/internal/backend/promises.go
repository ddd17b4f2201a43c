package backend

import (
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redlock"
	"github.com/sniblock/snib/sqlitelock"
	"github.com/sniblock/snib/zklock"
)

// Promises returns what each backend promises by its driver's defaults, on servers whose
// settings break no promise. It contacts no server: a driver knows its Info without one.
func Promises() []driver.Info {
	return []driver.Info{
		memlock.New().Info(), sqlitelock.Promises(), redislock.Promises(), redlock.Promises(5),
		pglock.New(nil).Info(), mysqllock.New(nil).Info(), zklock.New(nil).Info(), etcdlock.New(nil).Info(),
	}
}
