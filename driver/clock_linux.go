package driver

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is the id of the clock that counts sleep, from clock_gettime(2).
const clockBoottime = 7

// Now reads the clock. The reading lies between the moments of call and return.
func Now() Instant {
	if elapsed := time.Since(epoch); elapsed < 0 { // a bubble lives in the year 2000, long before epoch
		return newInstant(elapsed)
	}
	var ts syscall.Timespec
	// The system call can't fail for this clock id.
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0) //nolint:errcheck // see above
	return newInstant(time.Duration(ts.Nano()))
}

// newInstant returns the moment d after the zero of a clock that needs no second reading.
func newInstant(d time.Duration) Instant {
	return Instant{mono: int64(origin + d), wall: int64(origin + d)}
}
