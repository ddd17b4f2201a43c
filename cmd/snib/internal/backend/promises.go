package backend

import (
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/sqlitelock"
	"github.com/sniblock/snib/zklock"
)

// Promises returns what each backend promises with the default options of its driver, on servers
// whose settings break no promise. It contacts no server: a driver knows its Info without one.
func Promises() []driver.Info {
	return []driver.Info{
		memlock.New().Info(), new(sqlitelock.Driver).Info(), new(redislock.Driver).Info(), new(redlock.Driver).Info(),
		info(pglock.New(new(pgxpool.Pool))), info(mysqllock.New(new(sql.DB))),
		info(zklock.New([]string{"localhost"})), info(etcdlock.New(new(clientv3.Client))),
	}
}

// info returns the Info of a new driver. The error is nil, because the options are valid.
func info(d driver.Driver, _ error) driver.Info { return d.Info() }
