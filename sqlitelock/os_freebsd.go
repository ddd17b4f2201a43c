package sqlitelock

import "golang.org/x/sys/unix"

// bootID returns the kernel's id for the current boot. A different id means that
// every process of the earlier boot is gone.
func bootID() (string, error) { return unix.Sysctl("kern.boot_id") }

// bootClockID is the clock of bootClock. While the machine sleeps it may stand still. Then a lease
// lasts longer here than for its holder, whose clock counts sleep, which is safe.
const bootClockID = unix.CLOCK_MONOTONIC
