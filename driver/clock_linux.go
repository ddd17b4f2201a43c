package driver

import (
	"syscall"
	"time"
	"unsafe"
)

// Linux clock ids, from clock_gettime(2).
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// Now reads the clock. The reading lies between the moments of call and return.
func Now() Instant {
	// The order matters: a pause between two readings makes the result earlier, never later than the return.
	boot := clock(clockBoottime)
	mono := clock(clockMonotonic)
	return instant(boot, mono, time.Since(epoch))
}

// instant is the moment since after epoch, and later by as much as the machine has slept. Go's own monotonic clock stands
// still meanwhile; what it missed is the difference of the kernel's two clocks, which only a sleep changes. Rounding that up
// hides the nanoseconds between two readings; as it adds the same to all Instants it does not change what is between them.
func instant(boot, mono, since time.Duration) Instant {
	slept := (boot - mono + time.Millisecond - 1).Truncate(time.Millisecond)
	now := int64(origin + since + slept)
	return Instant{mono: now, wall: now}
}

// clock calls clock_gettime(2), which can't fail for these ids.
func clock(id uintptr) time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0) //nolint:errcheck // see above
	return time.Duration(ts.Nano())
}
