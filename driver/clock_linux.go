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
	// tolerance is the greatest distance between two readings that are treated as simultaneous.
	tolerance = 20 * time.Microsecond

	// maxAge is how long a reading of the boot clock is used while the machine runs. After that
	// the boot clock is read again, whatever the other clocks say.
	maxAge = time.Millisecond
)

// boot is the cache that all calls of Now share.
var boot bootCache

// Now reads the clock. The reading lies between the moments of call and return, or up to 40 µs
// before the call.
func Now() Instant { return boot.now(readClocks, readBootClock) }

// At returns the Instant of now, which [time.Now] must have returned just before. So a caller that
// needs both reads the clock once.
func At(now time.Time) Instant {
	if i, ok := boot.last.Load().instant(now.Sub(epoch), time.Duration(now.UnixNano())); ok {
		return i
	}
	return Now()
}

// readClocks reads the wall clock, and then how much time has passed since epoch by Go's clock.
// Neither is a system call.
func readClocks() (elapsed, wall time.Duration) {
	now := time.Now()
	return now.Sub(epoch), time.Duration(now.UnixNano())
}

// readBootClock calls clock_gettime(2), which can't fail for this clock id.
func readBootClock() time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0) //nolint:errcheck // see above
	return time.Duration(ts.Nano())
}

// A bootCache saves most of the system calls that reading the boot clock takes.
//
// All clocks run at the same rate. The boot clock and the wall clock count sleep, and Go's
// clock does not. After a sleep, the kernel advances the boot clock and the wall clock relative
// to Go's clock by the same amount, in one step. So as long as the difference between the wall
// clock and Go's clock is what it was when the boot clock was last read, the machine has not
// slept since. The only exception is a wall clock that was set back by exactly the length of
// the sleep, within the same millisecond of running. The decision on the lease clock has the
// argument in full.
type bootCache struct{ last atomic.Pointer[bootReading] }

// A bootReading is one reading of the boot clock, as offsets between clocks. The clocks for
// wallOffset are read before the boot clock, and Go's clock for bootOffset after it. So if the
// machine sleeps in between, wallOffset shows the sleep later on, and bootOffset is not too
// large.
type bootReading struct {
	bootOffset time.Duration // boot clock minus Go's clock, or up to tolerance less
	wallOffset time.Duration // wall clock minus Go's clock
	readAt     time.Duration // time of the reading, by Go's clock
}

// now reads the clocks. It reads the boot clock itself only if the last reading is no longer
// valid.
func (c *bootCache) now(readClocks func() (elapsed, wall time.Duration), readBootClock func() time.Duration) Instant {
	last := c.last.Load()
	elapsed, wall := readClocks()
	if i, ok := last.instant(elapsed, wall); ok {
		return i
	}
	bootTime := readBootClock()
	after, _ := readClocks()
	// If the thread was preempted in between, bootOffset would be too small by that time.
	if after-elapsed <= tolerance {
		c.last.Store(&bootReading{bootOffset: bootTime - after, wallOffset: wall - elapsed, readAt: elapsed})
	}
	return newInstant(bootTime)
}

// instant returns the Instant at which the other clocks were read, unless that takes another
// reading of the boot clock.
func (r *bootReading) instant(elapsed, wall time.Duration) (_ Instant, ok bool) {
	switch {
	case elapsed < 0: // a bubble lives in the year 2000, long before epoch, and knows no sleep
		return newInstant(elapsed), true
	case r.valid(elapsed, wall):
		return newInstant(elapsed + r.bootOffset), true
	}
	return Instant{}, false
}

// valid reports whether the boot clock provably still is as far ahead of Go's clock as it was
// at r. A nil r proves nothing. Neither does a reading from the future, which a bubble leaves
// behind if its time went past epoch.
func (r *bootReading) valid(elapsed, wall time.Duration) bool {
	if r == nil || elapsed < r.readAt || elapsed-r.readAt >= maxAge {
		return false
	}
	return (wall - elapsed - r.wallOffset).Abs() <= tolerance
}

// newInstant returns the moment d after the zero of a clock that needs no second reading.
func newInstant(d time.Duration) Instant {
	return Instant{mono: int64(origin + d), wall: int64(origin + d)}
}
