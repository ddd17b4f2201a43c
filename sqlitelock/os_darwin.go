package sqlitelock

import "golang.org/x/sys/unix"

// The commands of fcntl for locks that belong to an open file description, from XNU's
// bsd/sys/fcntl.h. SQLite's locks in this process are of the same kind.
const (
	ofdSetLock     = 90
	ofdSetLockWait = 91
	ofdGetLock     = 92
)

// bootID returns the kernel's id for the current boot. A different id means that
// every process of the earlier boot is gone.
func bootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }

// bootClockID is the clock of bootClock. It counts sleep.
const bootClockID = unix.CLOCK_MONOTONIC_RAW
