//go:build !linux

package driver

import "time"

// Now reads the clock. The reading lies between the moments of call and return.
func Now() Instant {
	now := time.Now()
	return Instant{
		mono: int64(origin + now.Sub(epoch)),
		// Round strips the monotonic reading.
		wall: int64(origin + now.Round(0).Sub(epoch.Round(0))),
	}
}
