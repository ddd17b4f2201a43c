//go:build !linux

package driver

import "time"

// Now reads the clock. The reading lies between the moments of call and return.
func Now() Instant { return At(time.Now()) }

// At returns the Instant of now, which [time.Now] must have returned just before. So a caller that
// needs both reads the clock once.
func At(now time.Time) Instant {
	return Instant{
		mono: int64(origin + now.Sub(epoch)),
		// Round strips the monotonic reading.
		wall: int64(origin + now.Round(0).Sub(epoch.Round(0))),
	}
}
