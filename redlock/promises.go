package redlock

import (
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// Promises returns the Info of a driver with default options on the given number of servers. It
// contacts none of them.
func Promises(servers int) driver.Info {
	conf, _ := configure(nil) // the defaults are valid
	return infoFor(quorum.Params{Nodes: servers, MaxTTL: conf.maxTTL})
}
