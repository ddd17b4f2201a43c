//go:build darwin || freebsd

package sqlitelock

import "golang.org/x/sys/unix"

// bootClock returns a clock in nanoseconds that all processes of this boot share and that nobody
// can set.
func bootClock() (func() int64, error) {
	return func() int64 {
		var ts unix.Timespec
		unix.ClockGettime(bootClockID, &ts) //nolint:errcheck // it can't fail for this clock
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
