package redlock

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option configures a driver. The defaults suit most uses.
type Option struct{ set func(*config) }

type config struct {
	maxTTL  time.Duration
	timeout time.Duration
	loss    LossPolicy
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
	case conf.loss > Refuse:
		return conf, driver.Invalidf("OnMajorityLoss: there is no policy %d", conf.loss)
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

// A LossPolicy says what happens to restarted nodes when no majority knows the
// counters any more.
type LossPolicy uint8

const (
	// ByTime admits them when they have waited for MaxTTL, as always, with counters that start
	// at the present time. Tokens then stay in order if the clients' clocks are right to within
	// half the outage.
	ByTime LossPolicy = iota

	// Refuse keeps them excluded until the Recover of [Admin] is called. Nothing is granted
	// meanwhile.
	Refuse
)

func (p LossPolicy) String() string {
	switch p {
	case ByTime:
		return "by time"
	case Refuse:
		return "refuse"
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// OnMajorityLoss sets what this client does when a majority of the nodes has lost its
// memory. The default is [ByTime]. Any client may admit nodes, so all clients should have
// the same policy.
func OnMajorityLoss(p LossPolicy) Option { return Option{func(c *config) { c.loss = p }} }
