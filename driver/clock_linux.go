package driver

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is the id of the clock that counts sleep, from clock_gettime(2).
const clockBoottime = 7

// bootEpoch is what the boot clock showed at epoch. It is never assigned to.
var bootEpoch = bootClock()

// Now reads the clock. The reading lies between the moments of call and return.
func Now() Instant { return instant(time.Since(epoch), bootClock()-bootEpoch) }

// instant is the moment at which so much time has passed since epoch by Go's clock and by the boot clock: the latter, except
// in a bubble, which knows no sleep. There Go's clock counts from the year 2000, so it is long before epoch, for the first
// decades of the bubble.
func instant(passed, booted time.Duration) Instant {
	if passed >= 0 {
		passed = booted
	}
	return Instant{mono: int64(origin + passed), wall: int64(origin + passed)}
}

// bootClock calls clock_gettime(2), which can't fail for this id.
func bootClock() time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0) //nolint:errcheck // see above
	return time.Duration(ts.Nano())
}
