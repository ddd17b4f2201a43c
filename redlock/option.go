package redlock

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option configures a driver. The defaults suit most uses.
type Option struct{ set func(*config) }

type config struct {
	maxTTL  time.Duration
	timeout time.Duration
}

func configure(opts []Option) (config, error) {
	conf := config{maxTTL: time.Minute, timeout: 250 * time.Millisecond}
	for _, o := range opts {
		if o.set == nil {
			return conf, driver.Invalidf("option: the zero Option")
		}
		o.set(&conf)
	}
	switch {
	case conf.maxTTL < minTTL || conf.maxTTL > longestTTL:
		return conf, driver.Invalidf("MaxTTL: %v, want %v to %v", conf.maxTTL, minTTL, longestTTL)
	case conf.maxTTL%time.Millisecond != 0:
		return conf, driver.Invalidf("MaxTTL: %v is not a whole number of milliseconds", conf.maxTTL)
	case conf.timeout < time.Millisecond:
		return conf, driver.Invalidf("NodeTimeout: %v, want at least a millisecond", conf.timeout)
	}
	return conf, nil
}

// MaxTTL sets the longest TTL of any lease. A restarted node stays excluded for that time. All
// clients of the same nodes must use the same MaxTTL; a client with another one is refused. The
// default is one minute. Whole milliseconds from 100 ms to 24 h are allowed.
func MaxTTL(d time.Duration) Option { return Option{func(c *config) { c.maxTTL = d }} }

// NodeTimeout sets how long a node may take to answer before it counts as down. An
// acquisition waits for missing answers no longer than a quarter of its TTL. The default is
// 250 ms, the minimum 1 ms.
//
// A slow node delays nobody while a majority answers, because all nodes are asked at once. So the
// timeout should be longer than the pauses of a healthy node, such as a fork or a slow fsync: a
// node that counts as down has no vote. Clients may have different timeouts.
func NodeTimeout(d time.Duration) Option { return Option{func(c *config) { c.timeout = d }} }
