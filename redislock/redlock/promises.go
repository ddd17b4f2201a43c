package redlock

import (
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// Promises is the Info of a driver without options on so many servers. It asks none of them.
func Promises(servers int) driver.Info {
	conf, _ := configure(nil) // the defaults are in range
	return describe(quorum.Params{Nodes: servers, MaxTTL: conf.maxTTL})
}
