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

// Promises are what each backend says of itself by its driver's defaults, where no setting of a server breaks a promise. No server is
// asked: Info is known without one, and drivers that are made of nothing say nothing else.
func Promises() []driver.Info {
	return []driver.Info{
		memlock.New().Info(), sqlitelock.Promises(), redislock.Promises(), redlock.Promises(5),
		pglock.New(nil).Info(), mysqllock.New(nil).Info(), zklock.New(nil).Info(), etcdlock.New(nil).Info(),
	}
}
