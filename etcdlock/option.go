package etcdlock

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option configures the driver that [New] returns.
type Option struct{ set func(*config) error }

func (o Option) apply(c *config) error {
	if o.set == nil {
		return driver.Invalidf("option: the zero Option")
	}
	return o.set(c)
}

// Timeout sets how long the session outlives a process that died, and with it everything that
// the process holds and waits for: 1 s to 24 h, 15 s by default. A fraction of a second is
// rounded up. etcd extends the timeout if its election timeout requires that; with etcd's
// defaults the least is 2 s. [driver.Grant] contains the actual value.
//
// Timeout replaces snib.TTL, which this backend does not use. A snib.TTL that is shorter is
// refused.
func Timeout(d time.Duration) Option {
	return Option{func(c *config) error {
		if d < time.Second || d > 24*time.Hour {
			return driver.Invalidf("Timeout %v: it must be between 1 s and 24 h", d)
		}
		c.timeout = (d + time.Second - 1).Truncate(time.Second)
		return nil
	}}
}
