package etcdlock

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option changes what [New] makes.
type Option func(*config) error

// The bounds of [Timeout]. etcd itself takes longer ones, but nobody wants to wait for them.
const (
	minTimeout = time.Second
	maxTimeout = 24 * time.Hour
)

// Timeout sets how long the session outlives a process that died, and with it all that it holds and waits for: 1 s to 24 h,
// 15 s by default. A part of a second counts as a whole one. etcd makes it longer if its election timeout asks for that: the
// least is 2 s with etcd's defaults. [driver.Grant] has what it is.
//
// It stands for snib.TTL, which this backend does not use.
func Timeout(d time.Duration) Option {
	return func(c *config) error {
		if d < minTimeout || d > maxTimeout {
			return fmt.Errorf("%w Timeout %v: it must be between %v and %v", driver.ErrInvalid, d, minTimeout, maxTimeout)
		}
		c.timeout = (d + time.Second - 1).Truncate(time.Second)
		return nil
	}
}
