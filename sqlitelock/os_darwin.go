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

// bootClock returns a clock in nanoseconds that all processes of this boot share, that counts
// sleep, and that nobody can set.
func bootClock() (func() int64, error) {
	return func() int64 {
		var ts unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts) //nolint:errcheck // it can't fail for this clock
		return ts.Nano()
	}, nil
}

// checkFolder refuses folders where locks would not work or where the process may not write.
func checkFolder(dir string) error {
	st, err := statfs(dir)
	if err != nil {
		return err
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return networkError(dir, unix.ByteSliceToString(st.Fstypename[:]))
	}
	return checkAccess(dir, unix.W_OK|unix.X_OK)
}

// mountID returns 0: only folders can be mounted.
func mountID(string) uint64 { return 0 }
