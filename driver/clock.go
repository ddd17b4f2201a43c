package driver

import (
	"math"
	"time"
)

// An Instant is a moment on the clock by which leases are judged. Unlike [time.Time] it counts
// the time during which the machine slept: a lease must not survive a closed lid. Instants
// compare within one process only, and must never be stored in shared state. The zero Instant
// is no moment: it lies before all others.
//
// On Linux the clock is CLOCK_BOOTTIME. Elsewhere an Instant has two readings, monotonic and
// wall. If they disagree about an interval, the longer one counts, so that a lease ends by
// whichever clock says so first. Inside a bubble of testing/synctest the clock follows the
// bubble's time.
type Instant struct {
	mono int64 // nanoseconds
	wall int64 // nanoseconds; equal to mono where mono counts sleep
}

// epoch is the time that Now counts from: time.Since needs a reading to compare with. It is
// never assigned to.
var epoch = time.Now()

// origin is the distance from the zero Instant to epoch, or to the machine's start. It is long
// because bubbles of testing/synctest live in the year 2000, decades before epoch.
const origin = 100 * 365 * 24 * time.Hour

// Add returns the moment d after i, or the last possible moment if the sum would overflow.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{saturatingAdd(i.mono, int64(d)), saturatingAdd(i.wall, int64(d))}
}

// saturatingAdd returns a+b, or the greatest int64 if the sum would be greater.
func saturatingAdd(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Sub returns how much time passed from j to i, by the clock that saw more of it.
func (i Instant) Sub(j Instant) time.Duration {
	return time.Duration(max(i.mono-j.mono, i.wall-j.wall))
}

// SubMono returns how much time passed from j to i by the monotonic reading, which nobody can set.
// It is for waits that must not end early. They last longer where it does not count sleep.
func (i Instant) SubMono(j Instant) time.Duration { return time.Duration(i.mono - j.mono) }

// Reached reports whether i, a deadline, has come at now, by whichever clock says so first.
func (i Instant) Reached(now Instant) bool { return now.mono >= i.mono || now.wall >= i.wall }

// Left returns how long it is from now until the deadline i, by the clock that has less left.
func (i Instant) Left(now Instant) time.Duration {
	return time.Duration(min(i.mono-now.mono, i.wall-now.wall))
}

// Before reports whether i is before j by the monotonic reading. It is meant for queues of
// deadlines.
func (i Instant) Before(j Instant) bool { return i.mono < j.mono }

// IsZero reports whether i is the zero Instant.
func (i Instant) IsZero() bool { return i == Instant{} }

// SteppedSince returns how much further the wall clock advanced from j to i than the monotonic
// clock did: the length of a sleep or of a step forward. It is zero where the monotonic reading
// counts sleep itself.
func (i Instant) SteppedSince(j Instant) time.Duration {
	return time.Duration(max(0, (i.wall-j.wall)-(i.mono-j.mono)))
}
