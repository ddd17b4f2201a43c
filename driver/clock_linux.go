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

const ms = int64(time.Millisecond)

// Now reads the clock. The reading lies between the moments of call and return.
func Now() Instant {
	// Go's own monotonic clock stands still while the machine sleeps; what it missed is the difference of the kernel's
	// two clocks, which only a sleep changes. The order of the readings matters: a pause between them makes the result
	// earlier, never later than the return. Rounding up hides the nanoseconds between two readings; as it adds the same
	// to all Instants it does not change what is between them.
	slept := (clock(clockBoottime) - clock(clockMonotonic) + ms - 1) / ms * ms
	now := int64(time.Since(epoch)) + slept
	return Instant{mono: now, wall: now}
}

// clock calls clock_gettime(2), which can't fail for these ids.
func clock(id uintptr) int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0) //nolint:errcheck // see above
	return ts.Nano()
}
