package main

import "time"

// A clock reads the monotonic clock that all processes of a host share, in
// nanoseconds. The monotonic reading of time.Now is from the same clock, but
// relative to the start of the process.
type clock struct {
	base     time.Time
	sharedAt int64 // the shared clock at base
}

func newClock() clock {
	var best clock
	for least, n := int64(0), 0; n < 16; n++ {
		before, now, after := monotonic(), time.Now(), monotonic()
		if n == 0 || after-before < least {
			least, best = after-before, clock{base: now, sharedAt: (before + after) / 2}
		}
	}
	return best
}

func (c clock) now() int64 { return c.sharedAt + int64(time.Since(c.base)) }

func (c clock) sleepUntil(at int64) { time.Sleep(time.Duration(at - c.now())) }
