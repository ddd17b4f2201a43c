package etcdlock

import "time"

// An Option changes how a driver works. It is what [Timeout] returns.
type Option struct{ timeout time.Duration }

// Timeout sets how long the session outlives a process that died, and with it everything that
// the process holds and waits for: 1 s to 24 h, 15 s by default. A fraction of a second is
// rounded up. etcd extends the timeout if its election timeout requires that; with etcd's
// defaults the least is 2 s. [driver.Grant] contains the actual value.
//
// Timeout replaces snib.TTL, which this backend does not use. A snib.TTL that is shorter is
// refused.
func Timeout(d time.Duration) Option { return Option{d} }
