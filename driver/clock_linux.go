package driver

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is the id of the clock that counts sleep, from clock_gettime(2).
const clockBoottime = 7

const (
	// tolerance bounds how far two readings may lie apart that are taken for simultaneous.
	tolerance = 20 * time.Microsecond

	// maxAge is after how much time of running the boot clock is read anew, whatever the other clocks say.
	maxAge = time.Millisecond
)

// boot is the cache that all calls of Now share.
var boot bootCache

// Now reads the clock. The reading lies between the moments of call and return, or at most 40 µs before the call.
func Now() Instant { return boot.now(clocks, bootClock) }

// clocks reads the wall clock, and then how much time has passed since epoch by Go's clock: neither is a system call.
func clocks() (passed, wall time.Duration) {
	now := time.Now()
	return now.Sub(epoch), time.Duration(now.UnixNano())
}

// bootClock calls clock_gettime(2), which can't fail for this id.
func bootClock() time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0) //nolint:errcheck // see above
	return time.Duration(ts.Nano())
}

// A bootCache spares most of the system calls that reading the boot clock takes.
//
// All clocks run at one rate. The boot clock and the wall clock count sleep, and Go's clock does not: in the step in which
// the kernel puts the boot clock ahead of Go's after a sleep, it puts the wall clock ahead by as much. So as long as wall
// clock and Go's clock are as far apart as they were when the boot clock was last read, the machine has not slept since; or
// the wall clock was set back by just the length of the sleep, in the same millisecond of running. The decision on the lease
// clock has the argument in full.
type bootCache struct{ last atomic.Pointer[bootReading] }

// A bootReading is what was found when the boot clock was read: after apart, and before ahead, so that a sleep in between is
// seen later by apart, and ahead is not too much.
type bootReading struct {
	ahead time.Duration // of the boot clock before Go's, or up to tolerance less
	apart time.Duration // from Go's clock to the wall clock
	asked time.Duration // when, by Go's clock
}

// now reads the clocks, and asks the boot clock itself unless it is proven what that shows.
func (c *bootCache) now(clocks func() (passed, wall time.Duration), bootClock func() time.Duration) Instant {
	last := c.last.Load()
	passed, wall := clocks()
	if passed < 0 { // in a bubble, which lives in the year 2000, long before epoch, and knows no sleep
		return instant(passed)
	}
	if last.holds(passed, wall) {
		return instant(passed + last.ahead)
	}
	booted := bootClock()
	after, _ := clocks()
	if after-passed <= tolerance { // else the thread was preempted in between, and ahead would be too little by as much
		c.last.Store(&bootReading{ahead: booted - after, apart: wall - passed, asked: passed})
	}
	return instant(booted)
}

// holds reports whether the boot clock is proven to be as far ahead of Go's as it was at r. A nil r proves nothing, and neither
// does one from the future, as a bubble leaves it that has come beyond epoch.
func (r *bootReading) holds(passed, wall time.Duration) bool {
	if r == nil || passed < r.asked || passed-r.asked >= maxAge {
		return false
	}
	return (wall - passed - r.apart).Abs() <= tolerance
}

// instant is the moment so long after the zero of a clock that is whole by itself.
func instant(d time.Duration) Instant {
	return Instant{mono: int64(origin + d), wall: int64(origin + d)}
}
